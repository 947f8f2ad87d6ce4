"""The last layer shared out among two processes by classes, against one process."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn import train
from hierlearn.errors import HierlearnError
from hierlearn.pipeline import Pipeline
from hierlearn.training.checkpoint import Checkpoints
from training import class_shards_worker as worker
from training.datasets import neighbor_plan, plan, problem, read_records, state, texts
from two_processes import launch

BY_ONE, BY_TWO = "stopped by one, resumed by two", "stopped by two, resumed by one"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All cases, trained by one process and by two."""
    folder = tmp_path_factory.mktemp("classes")
    for case in worker.CASES:
        worker.run(case, folder / "one", "ddp")
    worker.run(BY_ONE, folder / "two", "ddp", stops=True)
    done = launch(worker.__file__, folder / "two")
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def stopped(folder):
    """The checkpoint that two processes left, before one process resumes from it."""
    found = Checkpoints(folder / "two" / BY_TWO / "checkpoints").latest()
    worker.run(BY_TWO, folder / "two", "classes", resume=True)
    return found


def assert_same_weights(first, second, atol):
    for name, value in state(first.network).items():
        torch.testing.assert_close(state(second.network)[name], value, rtol=1e-3, atol=atol)


@pytest.mark.parametrize("case", worker.CASES)
def test_two_processes_train_as_one(folder, stopped, case):
    del stopped
    loose = case == "bf16"  # whose matmuls of a part of the classes are rounded otherwise
    together, alone = (read_records(folder / which / case) for which in ("two", "one"))
    assert [one["step"] for one in together] == [one["step"] for one in alone]
    for mine, theirs in zip(together, alone, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-2 if loose else 1e-5)
        if not loose:
            assert mine.get("selected_by_level") == theirs.get("selected_by_level")
        for name, values in theirs.get("valid", {}).items():
            assert mine["valid"][name] == pytest.approx(values, abs=1e-2 if loose else 1e-5)
    first, second = (Pipeline.load(folder / which / case) for which in ("one", "two"))
    assert_same_weights(first, second, 2e-2 if loose else 2e-5)


def test_the_cases_select_and_stop(folder):
    """They would show little if every class were selected, and nobody stopped."""
    records = {case: read_records(folder / "two" / case) for case in worker.CASES}
    assert any(one["selected_by_level"][-1] < 1 for one in records["hcl"])
    assert len(records["hcl of epochs, stopping early"]) < 8


def test_a_checkpoint_is_that_of_one_process(folder, stopped):
    worker.run(BY_TWO, folder / "once more", "ddp", stops=True)
    alone = Checkpoints(folder / "once more" / BY_TWO / "checkpoints").latest()
    assert stopped.metadata["step"] == alone.metadata["step"] == 12
    assert stopped.tensors.keys() == alone.tensors.keys()
    for name, value in alone.tensors.items():
        torch.testing.assert_close(stopped.tensors[name], value, rtol=1e-3, atol=2e-5)


def test_a_killed_process_is_started_again_and_all_end_in_the_same_weights(tmp_path, folder):
    case = "hcl-paper, noise"
    done = launch(worker.__file__, tmp_path, case, "--die", 1, 14, restarts=1)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "resume from the last checkpoint" in done.stderr
    again, before = tmp_path / case, folder / "two" / case
    assert (again / "model.safetensors").read_bytes() == (before / "model.safetensors").read_bytes()
    assert read_records(again) == read_records(before)


def test_in_one_process_nothing_is_shared_out():
    chosen = plan("hcl", batch_size=7)
    alone = train(problem(), chosen)
    same = train(problem(), replace(chosen, settings={**chosen.settings, "parallel": "classes"}))
    for name, value in state(alone.network).items():
        assert torch.equal(state(same.network)[name], value)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (plan("bce", ensemble_size=2), "parallel classes trains one network, not 2"),
        (plan("bce", accumulate=2), "parallel classes computes a batch at once, not in 2 parts"),
        (neighbor_plan("bce"), "parallel classes needs a Network with one LinearHead"),
        (plan("bce", network="hmc-lmlp"), "parallel classes needs a Network with one LinearHead"),
        (plan("bce", network="linear", optimizer="lbfgs"), "is for optimizer adamw, not lbfgs"),
        (plan("soft-labels"), "SoftLabelsLoss cannot be computed in shards of classes; use bce"),
        (plan("cond-softmax"), "CondSoftmaxLoss cannot be computed in shards of classes"),
        (
            plan("mixed", options={"parts": {"hcl": 1.0, "bce": 1.0}}),
            "HCLLoss in a mixed loss cannot be computed in shards",
        ),
        (plan("bce", options={"link": "siblings"}), "SiblingsLink cannot be computed in shards"),
    ],
)
def test_refusals(chosen, message):
    with pytest.raises(HierlearnError, match=message):
        train(problem(), replace(chosen, settings={**chosen.settings, "parallel": "classes"}))


def test_a_linear_network_on_sparse_rows_is_refused():
    chosen = plan("bce", network="linear", parallel="classes", optimizer="adamw")
    with pytest.raises(HierlearnError, match="parallel classes needs dense features"):
        train(texts(), chosen)


def test_all_processes_hear_of_weights_that_are_not_finite(tmp_path):
    done = launch(worker.__file__, tmp_path, "hcl", "--break", 1, 6)  # the last step of an epoch
    assert done.returncode != 0
    assert done.stderr.count("weights became nan") == 2, done.stderr[-4000:]
    assert not np.any([path.suffix == ".safetensors" for path in tmp_path.rglob("*")])
