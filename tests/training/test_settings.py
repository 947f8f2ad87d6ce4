"""Settings are plain values: what is refused, and the learning rate of each step by hand."""

import json
import math

import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.training import Settings
from hierlearn.training.settings import SCHEDULES, learning_rate


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"epochs": 2.0}, "epochs must be an integer, not 2.0"),
        ({"batch_size": True}, "batch_size must be an integer, not True"),
        ({"ensemble_size": 0}, "ensemble_size must be from 1 to 1000, not 0"),
        ({"ensemble_size": 10**9}, "ensemble_size must be from 1 to 1000, not 1000000000"),
        ({"validate_every": -1}, "validate_every must be at least 1, not -1"),
        ({"keep_checkpoints": 0}, "keep_checkpoints must be at least 1, not 0"),
        ({"patience": 0}, "patience must be at least 1, or None, not 0"),
        ({"checkpoint_every": 0}, "checkpoint_every must be at least 1, or None, not 0"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, not 0.0"),
        ({"learning_rate": math.inf}, "learning_rate must be above 0, not inf"),
        ({"learning_rate": math.nan}, "learning_rate must be above 0, not nan"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0, not -0.1"),
        ({"warmup": 1.0}, r"warmup must be in \[0, 1\), not 1.0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must be above 0, or None, not 0.0"),
        ({"max_grad_norm": math.nan}, "max_grad_norm must be above 0, or None, not nan"),
        ({"prior_bias": "yes"}, "prior_bias must be true or false, not 'yes'"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'; did you mean 'cosine'"),
        ({"precision": "fp16"}, "unknown precision 'fp16'"),
        ({"metric": "hit@2"}, "unknown metric 'hit@2'; did you mean"),
        (
            {"metric": "mean-level"},
            "metric 'mean-level' is not a single number to improve; use one of exact,",
        ),
        ({"metric": "level-accuracy"}, "metric 'level-accuracy' is not a single number to improve"),
        ({"learning_rates": 0.1}, "unknown setting 'learning_rates'; did you mean 'learning_rate'"),
        ({"learning_rate": "fast"}, "learning_rate must be a number, not 'fast'"),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(HierlearnError, match=message):
        Settings.from_dict(changes)


def test_plain_values_and_back():
    settings = Settings(epochs=3, max_grad_norm=1.0, patience=2)
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


def test_integers_stand_for_floats():
    for settings in (Settings.from_dict({"weight_decay": 1}), Settings(weight_decay=1)):
        assert isinstance(settings.weight_decay, float)


def rates(steps=10, **changes):
    settings = Settings(learning_rate=0.1, **changes)
    return [learning_rate(settings, step, steps) for step in range(steps)]


def test_the_schedules():
    assert rates(schedule="constant") == [0.1] * 10
    assert rates(schedule="linear") == pytest.approx([0.1 * (1 - k / 10) for k in range(10)])
    by_hand = [0.05 * (1 + math.cos(math.pi * k / 10)) for k in range(10)]
    assert rates(schedule="cosine") == pytest.approx(by_hand)


def rates_of_torch(kind, steps, **options):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule = kind(optimizer, max_lr=0.1, cycle_momentum=False, **options)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


@pytest.mark.parametrize("steps", [1, 2, 7, 10, 100, 333])
def test_1cycle_is_that_of_torch(steps):
    found = rates(steps, schedule="1cycle")
    if steps >= 7:  # torch divides by zero where there are few steps
        wanted = rates_of_torch(torch.optim.lr_scheduler.OneCycleLR, steps, total_steps=steps)
        assert found == pytest.approx(wanted)
    assert all(0 < rate <= 0.1 for rate in found)


@pytest.mark.parametrize("steps", [3, 10, 100, 333])
def test_cyclic_is_that_of_torch(steps):
    found = rates(steps, schedule="cyclic")
    if steps >= 10:
        kind = torch.optim.lr_scheduler.CyclicLR
        wanted = rates_of_torch(kind, steps, base_lr=0.01, step_size_up=steps / 10)
        assert found == pytest.approx(wanted)
    assert all(0.01 <= rate <= 0.1 + 1e-12 for rate in found)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warmup_rises_to_the_peak_and_the_schedule_follows(schedule):
    found = rates(schedule=schedule, warmup=0.4)
    assert found[:4] == pytest.approx([0.025, 0.05, 0.075, 0.1])
    assert found[4:] == pytest.approx(rates(6, schedule=schedule))


def test_one_step_has_the_peak():
    assert rates(1, schedule="cosine", warmup=0.9) == [0.1]
