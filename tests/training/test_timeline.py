"""Where time goes in an epoch, on a clock that only the parts under test move."""

import pytest
import torch

from hierlearn.training.solvers import solver, timeline
from hierlearn.training.solvers.timeline import PARTS, EnoughEpochs, EpochTimer, tensors_of
from training.datasets import (
    CPU,
    assert_identical,
    neighbor_plan,
    plan,
    problem,
    state,
    trainer_of,
)

STEPS = 5  # of 8 rows: 36 of the 60 are for training
COSTS = {  # seconds of each call
    "batch": 1,
    "forward": 10,
    "network backward": 20,
    "loss": 100,
    "loss backward": 200,
    "optimizer": 1_000,
    "metric": 10_000,
    "save": 100_000,
    "callback": 1_000_000,
}
JOINT = neighbor_plan(joint={"soft-labels": 1.0})
PLANS = {
    "logits": plan(),
    "an ensemble": plan(ensemble_size=2),
    "batches in parts": plan(accumulate=2),
    "a memory": neighbor_plan(),
    "a memory and logits": JOINT,
}


@pytest.fixture
def now(monkeypatch):
    """A clock that stands still until it is moved."""
    at = [0.0]
    monkeypatch.setattr(timeline.time, "perf_counter", lambda: at[0])
    return at


class Passing(torch.autograd.Function):
    """Leave a tensor as it is, and let time pass in the backward pass."""

    @staticmethod
    def forward(ctx, x, now, seconds):
        ctx.now, ctx.seconds = now, seconds
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.now[0] += ctx.seconds
        return gradient, None, None


def taking(now, seconds, function):
    def slow(*words, **more):
        now[0] += seconds
        return function(*words, **more)

    return slow


def slow_trainer(now, chosen, monkeypatch):
    """Return a trainer whose calls take the seconds of COSTS, and how often tensors go back."""
    trainer = trainer_of(problem(), chosen, save=taking(now, COSTS["save"], lambda *_: None))
    trainer.on_step = taking(now, COSTS["callback"], lambda *_: None)
    network, loss = trainer.network.forward, trainer.loss.forward
    if trainer.sampler is None:
        trainer.rows.batch = taking(now, COSTS["batch"], trainer.rows.batch)
    else:
        trainer.sampler.batch = taking(now, COSTS["batch"], trainer.sampler.batch)
    backward = []

    def forward(*words, **more):
        found = network(*words, **more)
        if not trainer.network.training:
            return found
        now[0] += COSTS["forward"]
        heads = found.values() if isinstance(found, dict) else [found]
        outputs = [
            one.map(lambda x: Passing.apply(x, now, COSTS["network backward"])) for one in heads
        ]
        backward.append(sum(len([*tensors_of(one)]) for one in outputs))
        return dict(zip(found, outputs, strict=True)) if isinstance(found, dict) else outputs[0]

    def slow_loss(*words):
        now[0] += COSTS["loss"]
        return Passing.apply(loss(*words), now, COSTS["loss backward"])

    monkeypatch.setattr(trainer.network, "forward", forward)
    monkeypatch.setattr(trainer.loss, "forward", slow_loss)
    monkeypatch.setattr(
        trainer.optimizer, "step", taking(now, COSTS["optimizer"], trainer.optimizer.step)
    )
    monkeypatch.setattr(
        "hierlearn.training.solvers.solver.compute",
        taking(now, COSTS["metric"], solver.compute),
    )
    return trainer, backward


@pytest.mark.parametrize("chosen", PLANS.values(), ids=list(PLANS))
def test_every_second_goes_to_its_part(now, monkeypatch, chosen):
    trainer, backward = slow_trainer(now, chosen, monkeypatch)
    trainer.timeline = timer = EpochTimer(CPU, blocks=1)
    with pytest.raises(EnoughEpochs):
        trainer.train()
    parts = STEPS * chosen.settings.get("accumulate", 1)
    members = chosen.settings.get("ensemble_size", 1)
    assert len(timer.measured) == 2
    for found, heads in zip(timer.measured, (backward[:parts], backward[parts:]), strict=True):
        assert found == {
            "input": parts * COSTS["batch"],
            "network": parts * COSTS["forward"] + sum(heads) * COSTS["network backward"],
            "loss": parts * (COSTS["loss"] + COSTS["loss backward"]),
            "optimizer": STEPS * COSTS["optimizer"],
            "metrics": members * COSTS["metric"],
            "checkpoints": COSTS["save"],
            "other": STEPS * COSTS["callback"],
        }
        assert list(found) == list(PARTS)
    assert timer.means() == timer.measured[1]


@pytest.mark.parametrize("chosen", [PLANS["logits"], JOINT], ids=["logits", "a memory and logits"])
def test_a_measured_training_is_the_same_training(chosen):
    plain, measured = trainer_of(problem(), chosen), trainer_of(problem(), chosen)
    plain.train()
    measured.timeline = timer = EpochTimer(CPU, blocks=9)
    measured.train()  # ends before all that were asked for
    assert_identical(state(plain), state(measured))
    assert len(timer.measured) == 3
    assert timer.warmed_up


def epochs(timer, now):
    """Let epochs of one second per part pass until there are enough."""
    while True:
        timer.begin_epoch()
        for part in PARTS:
            timer.enter(part)
            now[0] += 1
        timer.end_epoch()


def test_on_a_gpu_every_other_block_is_not_interrupted(now, monkeypatch):
    waits, measured = [], []
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    timer = EpochTimer(
        torch.device("cuda"), blocks=2, block=2, on_epoch=lambda _: measured.append(timer.measuring)
    )
    with pytest.raises(EnoughEpochs):
        epochs(timer, now)
    assert measured == [True, True, False, False] * 3
    per_epoch = 2  # its begin and its end
    assert len(waits) == 12 * per_epoch + measured.count(True) * len(PARTS)
    assert timer.whole == [len(PARTS)] * 6
    assert timer.means() == dict.fromkeys(PARTS, 1.0)
    timer.whole[:2] = 100.0, 200.0  # they warm up
    timer.measured[0]["loss"] = 100.0
    assert timer.uninterrupted() == len(PARTS)
    assert timer.means() == dict.fromkeys(PARTS, 1.0)


def test_the_warm_up_counts_where_nothing_else_does(now):
    timer = EpochTimer(CPU, blocks=1)
    timer.begin_epoch()
    now[0] += 7
    timer.end_epoch()
    assert not timer.warmed_up
    assert timer.means()["input"] == 7
    assert timer.uninterrupted() is None
