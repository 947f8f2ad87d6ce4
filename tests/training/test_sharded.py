"""Weights shared out among two processes (FSDP2) against one process."""

import pytest
import torch
from torch import nn

from hierlearn import Plan, train
from hierlearn.errors import HierlearnError
from hierlearn.pipeline import Pipeline
from hierlearn.training.checkpoint import Checkpoints
from hierlearn.training.solvers.parallel import blocks
from tiny_backbones import save_tiny_bert
from training import sharded_worker as worker
from training.datasets import plan, problem, read_records, state
from two_processes import launch

pytestmark = pytest.mark.slow
CASES = [*worker.cases(worker.Path())]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All cases, trained by one process and by two."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("sharded")
    save_tiny_bert(folder / "bert", dropout=0.0)
    for case in CASES:
        worker.run(case, folder, folder / "one", "ddp")
    worker.run(CASES[4], folder, folder / "two", "ddp", stops=True)
    done = launch(worker.__file__, folder)
    assert done.returncode == 0, done.stderr[-4000:]
    worker.run(CASES[5], folder, folder / "two", "ddp", resume=True)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one(folder, case):
    together, alone = (read_records(folder / which / case) for which in ("two", "one"))
    assert [one["step"] for one in together] == [one["step"] for one in alone]
    for mine, theirs in zip(together, alone, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        for name, values in theirs.get("valid", {}).items():
            assert mine["valid"][name] == pytest.approx(values, abs=1e-4)
    first, second = (Pipeline.load(folder / which / case) for which in ("one", "two"))
    for name, value in state(first.network).items():
        if "key.bias" in name:  # attention does not depend on it: its gradient is rounding errors
            continue
        torch.testing.assert_close(state(second.network)[name], value, rtol=1e-3, atol=1e-4)
    rows = (worker.titles if first.preprocessor.reads == "texts" else problem)().inputs
    torch.testing.assert_close(
        second.probabilities(rows), first.probabilities(rows), rtol=0, atol=1e-4
    )


def test_checkpoints_are_those_of_one_process(folder):
    for case in CASES:
        found = [
            Checkpoints(folder / which / case / "checkpoints").latest() for which in ("one", "two")
        ]
        if None in found:  # a finished training removes them
            continue
        shapes = [{key: tuple(v.shape) for key, v in one.tensors.items()} for one in found]
        assert shapes[0] == shapes[1]


def test_one_case_stops_early(folder):
    """It would show little if no weights were brought back."""
    records = read_records(folder / "two" / "stopping early")
    best = Pipeline.load(folder / "two" / "stopping early").config["training"]["best_epoch"]
    assert best[0] < records[-1]["epoch"]


def test_in_one_process_nothing_is_shared_out():
    chosen = plan("bce", batch_size=7)
    alone = train(problem(), chosen)
    same = train(
        problem(), Plan(**{**vars(chosen), "settings": {**chosen.settings, "parallel": "fsdp"}})
    )
    for name, value in state(alone.network).items():
        assert torch.equal(state(same.network)[name], value)


def test_blocks_are_the_layers_of_a_list():
    one = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    layers = nn.ModuleList([nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]) for _ in range(2)])
    network = nn.ModuleDict(
        {"mixed": one, "layers": layers, "few": nn.ModuleList([nn.Linear(1, 1)])}
    )
    found = list(blocks(network))
    assert {id(part) for part in found} == {id(part) for part in [*layers[0], *layers[1], *layers]}
    assert [type(part) for part in found[:4]] == [nn.Linear] * 4  # inner ones first


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"settings": {"ensemble_size": 2}}, "trains one network, not 2"),
        ({"recipe": "quick", "loss": None}, "cannot train a memory"),
        ({"recipe": "hmc-lmlp", "loss": None}, "cannot train a network part by part"),
        ({"recipe": "tsle", "loss": None}, "cannot train weights that the loss computes with"),
        ({"recipe": "nearest", "loss": None}, "is for optimizer adamw, not none"),
        ({"recipe": "linear", "loss": None}, "is for optimizer adamw, not linear"),
    ],
)
def test_refusals(more, message):
    settings = {"parallel": "fsdp", "device": "cpu", **more.get("settings", {})}
    chosen = Plan(**{"loss": "bce", **more, "settings": settings})
    with pytest.raises(HierlearnError, match=f"parallel fsdp {message}"):
        train(problem(), chosen)
