"""Two real processes against one: the same losses, selections and weights; and one that dies."""

import re

import pytest
import torch

from hierlearn.pipeline import Pipeline
from hierlearn.training.checkpoint import Checkpoints
from training import distributed_worker as ranks
from training.datasets import read_records, state
from two_processes import launch

LOST = re.compile(
    r"process 0 (lost the connection to another one in epoch 3|was terminated, as torchrun does "
    r"when another one is lost); resume from the last checkpoint (with resume=True|\(--resume, or )"
)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """All cases trained by two processes, one after another."""
    folder = tmp_path_factory.mktemp("two")
    done = launch(ranks.__file__, folder, *ranks.CASES)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The same cases trained by this process."""
    folder = tmp_path_factory.mktemp("one")
    for case in ranks.CASES:
        ranks.run(case, folder)
    return folder


def numbers(values):
    """Return figures with -1 for those of a model that has stopped."""
    return [-1 if value is None else value for value in values]


def assert_close(first, second):
    """Compare weights; sums over processes are rounded otherwise than sums over rows."""
    for name, value in state(first.network).items():
        torch.testing.assert_close(state(second.network)[name], value, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("case", ranks.CASES)
def test_two_processes_train_as_one_on_the_same_batches(one, two, case):
    together, alone = read_records(two / case), read_records(one / case)
    assert len(together) == len(alone)
    for mine, theirs in zip(together, alone, strict=True):
        assert numbers(mine["loss"]) == pytest.approx(numbers(theirs["loss"]), rel=1e-5)
        assert mine.get("selected_by_level") == theirs.get("selected_by_level")
        for name, values in theirs.get("valid", {}).items():
            assert numbers(mine["valid"][name]) == pytest.approx(numbers(values), abs=1e-6)
        for name in ("epoch", "step", "learning_rate"):
            assert mine[name] == theirs[name]
    assert_close(Pipeline.load(two / case), Pipeline.load(one / case))


def test_curricula_select_and_members_stop(two):
    """The cases above would show little if nothing were left out, and nobody stopped."""
    for case, (_, chosen, _) in ranks.CASES.items():
        records = read_records(two / case)
        if chosen.loss == "hcl":
            assert (
                records[0]["selected_by_level"][-1] < 1 or records[-1]["selected_by_level"][-1] < 1
            )
        if chosen.loss == "teacher":
            assert len({tuple(record["selected_by_level"]) for record in records}) > 1
        if "stopping" in case:
            assert len(records) < 8


@pytest.fixture(scope="module")
def died(tmp_path_factory):
    """The first of two processes after the second was killed in the third epoch."""
    folder = tmp_path_factory.mktemp("died")
    return folder, launch(ranks.__file__, folder, "cross entropy", "--die", "1", "14", "signal")


def test_a_process_that_dies_ends_the_job_with_a_sentence(died):
    done = died[1]
    assert done.returncode != 0
    assert LOST.search(done.stderr), done.stderr


def test_its_checkpoint_goes_on_in_a_single_process(died, one):
    folder = died[0] / "cross entropy"
    assert not (folder / "config.json").exists()
    latest = Checkpoints(folder / "checkpoints").latest()
    assert latest.metadata["step"] == 12  # the end of the second epoch
    model = ranks.run("cross entropy", died[0], resume=True)
    assert [record["epoch"] for record in read_records(folder)] == [1, 2, 3]
    assert_close(model, Pipeline.load(one / "cross entropy"))


def test_torchrun_starts_again_and_ends_in_the_same_weights(tmp_path, two):
    done = launch(ranks.__file__, tmp_path, "noise", "--die", "1", "14", "exit", restarts=1)
    assert done.returncode == 0, done.stderr
    assert LOST.search(done.stderr), done.stderr
    for name in ("model.safetensors", "hierarchy.json"):
        assert (tmp_path / "noise" / name).read_bytes() == (two / "noise" / name).read_bytes()
    assert read_records(tmp_path / "noise") == read_records(two / "noise")
