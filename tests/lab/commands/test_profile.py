"""Profile: the parts of an epoch of real trainings."""

from dataclasses import replace

import pytest
import torch

from hierlearn import Dataset, Plan
from hierlearn.errors import HierlearnError
from hierlearn.lab.commands.bench import profile
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import Processes
from hierlearn.training.solvers.timeline import PARTS
from training.datasets import CPU, neighbor_plan, plan, problem, texts

ALONE = Processes(0, 1, CPU)


def profile_of(dataset, chosen, **options):
    return profile(prepare(dataset, chosen, CPU), ALONE, **options)


def test_a_training_in_batches():
    seen = []
    found = profile_of(problem(), plan(epochs=50), epochs=2, on_epoch=seen.append)
    assert seen == [1, 2, 3]
    assert (found.measured, found.warmed_up, found.without_waiting) == (2, True, None)
    assert (found.epochs, found.steps, found.batch_size) == (50, 5, 8)
    assert list(found.seconds) == list(PARTS)
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert sum(found.fractions.values()) == pytest.approx(1)
    assert found.whole == pytest.approx(50 * sum(found.seconds.values()))
    assert found.summary.startswith("model: ")
    assert found.to_dict()["total"] == found.total


def test_a_training_that_ends_earlier():
    found = profile_of(problem(), plan(epochs=1), epochs=5)
    assert (found.measured, found.warmed_up) == (1, False)


def test_validations_that_are_epochs_apart():
    found = profile_of(problem(), plan(epochs=50, validate_every=3), epochs=2)
    assert found.measured == 6
    assert found.seconds["metrics"] > 0


def test_without_validation_no_time_goes_there():
    dataset = problem()
    dataset = replace(dataset, splits={"train": dataset.splits["train"]})
    assert profile_of(dataset, plan(), epochs=1).seconds["metrics"] == 0


def test_a_solver_has_one_step():
    found = profile_of(texts(), Plan(recipe="linear", settings={"device": "cpu"}))
    assert (found.measured, found.epochs, found.steps, found.batch_size) == (1, 1, 1, 24)
    used = {part for part, seconds in found.seconds.items() if seconds}
    assert used == {"input", "optimizer", "checkpoints"}


def test_a_memory_that_is_not_trained():
    rows = problem()
    embeddings = Dataset(rows.inputs, rows.labels, rows.hierarchy, splits=rows.splits)
    found = profile_of(embeddings, Plan(recipe="nearest", settings={"device": "cpu"}))
    assert (found.measured, found.steps) == (1, 1)
    assert found.seconds["network"] > 0
    assert found.seconds["loss"] == 0


def test_a_memory_that_is_trained():
    found = profile_of(problem(), neighbor_plan(), epochs=1)
    assert found.seconds["network"] > 0
    assert found.seconds["loss"] > 0


def test_several_processes_are_refused():
    ready = prepare(problem(), plan(), CPU)
    with pytest.raises(HierlearnError, match="of one process, not of 2; start it without torchrun"):
        profile(ready, Processes(0, 2, CPU))


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = torch.get_rng_state()
    profile_of(problem(), plan(), epochs=1)
    assert not [*tmp_path.iterdir()]
    assert torch.equal(before, torch.get_rng_state())
