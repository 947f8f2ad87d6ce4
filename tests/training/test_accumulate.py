"""Batches in parts: the gradient of the whole batch, whatever it is cut into."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from hierlearn.errors import HierlearnError
from hierlearn.pipeline import train
from hierlearn.pipeline.run import Reporting
from hierlearn.training import Plan, Settings
from hierlearn.training.processes import Processes
from training.datasets import CPU, assert_identical, plan, problem, state, trainer_of
from training.distributed_worker import CASES

# Curricula of batches select by what they see at once.
MEANS = {name: case for name, case in CASES.items() if "hcl" not in str(case[1].loss)}


def with_parts(chosen, parts):
    return replace(chosen, settings={**chosen.settings, "accumulate": parts})


def losses_of(make, chosen, weights):
    """Return the losses of all epochs and the last weights."""
    records = []
    trainer = trainer_of(make(), chosen, weights, on_epoch=records.append)
    trainer.train()
    return [record["loss"] for record in records], state(trainer)


@cache
def whole_batches(case):
    """Return what ``losses_of`` does for batches in one part."""
    make, chosen, weights = MEANS[case]
    return losses_of(make, with_parts(chosen, 1), weights)


@pytest.mark.parametrize("parts", [3, 100])
@pytest.mark.parametrize("case", MEANS)
def test_a_batch_in_parts_is_the_batch(case, parts):
    make, chosen, weights = MEANS[case]
    whole, expected = whole_batches(case)
    found, weights_found = losses_of(make, with_parts(chosen, parts), weights)
    assert torch.tensor(found).double().numpy() == pytest.approx(
        torch.tensor(whole).double().numpy(), rel=1e-5
    )
    for name, value in expected.items():
        torch.testing.assert_close(weights_found[name], value, rtol=1e-3, atol=2e-5)


def test_the_gradient_of_a_step_is_equal_to_1e_6():
    found = []
    for parts in (1, 4):
        trainer = trainer_of(problem(), plan("bce", accumulate=parts))
        trainer.optimizer.step = lambda: None
        trainer.train_step(trainer.rows.order([0], 0)[0][:8], 0, 0)
        found.append([one.grad.clone() for one in trainer.network.parameters()])
    for first, second in zip(*found, strict=True):
        torch.testing.assert_close(first, second, atol=1e-6, rtol=1e-6)


def test_no_more_rows_than_a_part_are_computed_at_once():
    sizes = []
    trainer = trainer_of(problem(), plan("bce", accumulate=4))
    hook = trainer.network.register_forward_hook(lambda _, given, __: sizes.append(len(given[0])))
    trainer.train_step(trainer.rows.order([0], 0)[0][:8], 0, 0)
    hook.remove()
    assert sizes == [2, 2, 2, 2]


class OwnDropout(nn.Module):
    """A network that draws from torch's generator."""

    def __init__(self, width, classes):
        super().__init__()
        self.linear = nn.Linear(width, classes)
        self.drawn = []

    def forward(self, x):
        self.drawn.append(torch.rand(3).tolist() if self.training else None)
        return self.linear(x)


def test_parts_draw_different_noise_and_repeat_it_when_resumed():
    def drawn(step):
        network = OwnDropout(5, 12)
        trainer = trainer_of(problem(), plan("bce", accumulate=2, dropout=0), network=network)
        trainer.step = step
        trainer.train_step(trainer.rows.order([0], 0)[0][:8], 0, step)
        return network.drawn

    first, second = drawn(0)
    assert first != second
    assert drawn(0) == [first, second]
    assert drawn(1)[0] != first


def test_a_training_in_parts_resumes_bit_for_bit(tmp_path):
    chosen = plan("bce", dropout=0.5, accumulate=3, checkpoint_every=2, keep_checkpoints=100)
    quiet = Reporting(bar=False)
    whole = train(problem(), chosen, out=tmp_path / "whole", reporting=quiet)

    def stop(step, _):
        if step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(problem(), chosen, tmp_path / "cut", reporting=Reporting(bar=False, on_step=stop))
    resumed = train(problem(), chosen, tmp_path / "cut", resume=True, reporting=quiet)
    assert_identical(state(whole.network), state(resumed.network))


@pytest.mark.parametrize(("rows", "parts", "sizes"), [(7, 3, [3, 2, 2]), (2, 2, [1, 1])])
def test_parts_are_of_nearly_equal_size(rows, parts, sizes):
    trainer = trainer_of(problem(), plan("bce", accumulate=parts, batch_size=rows))
    found = trainer.split_microbatches(torch.arange(rows), 0)
    assert [len(part) for part in found] == sizes


def test_processes_cut_into_the_same_number_of_parts():
    counts = set()
    for rank in (0, 1):
        here = Processes(rank, 1, CPU)
        trainer = trainer_of(problem(), plan("bce", accumulate=4, batch_size=7), processes=here)
        object.__setattr__(here, "world", 2)
        counts.add(tuple(len(trainer.split_microbatches(torch.arange(7), at)) for at in range(6)))
    assert counts == {(4, 4, 4, 4, 4, 1)}


def test_linear_has_no_batches():
    with pytest.raises(HierlearnError, match="accumulate 2 cuts batches, and linear has none"):
        Settings(optimizer="linear", accumulate=2)
    with pytest.raises(HierlearnError, match="linear has none"):
        Plan(settings={"optimizer": "linear", "accumulate": 2})
    with pytest.raises(HierlearnError, match="accumulate must be at least 1, not 0"):
        Settings(accumulate=0)
