"""Train: the folder it leaves, what it refuses, and what it tells."""

import json

import numpy as np
import pytest
import torch

from files.stray_files import stray_name
from hierlearn.errors import HierlearnError
from hierlearn.pipeline import Pipeline, evaluate, train
from hierlearn.pipeline.run import Reporting
from hierlearn.pipeline.seen_rows import row_digests
from hierlearn.pipeline.train import save_into
from hierlearn.training import Plan
from hierlearn.training.checkpoint import Checkpoints
from training.datasets import (
    assert_identical,
    last_layer,
    plan,
    problem,
    read_records,
    state,
    without_splits,
)

FOLDER = [
    *("README.md", "checkpoints", "config.json", "hierarchy.json", "log.jsonl"),
    "model.safetensors",
    "rows.safetensors",
]

QUIET = Reporting(bar=False)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_of_a_training(tmp_path):
    model = train(
        problem(), plan("hcl", keep_checkpoints=2), out=tmp_path / "deep" / "m", reporting=QUIET
    )
    folder = tmp_path / "deep" / "m"
    assert names(folder) == FOLDER
    assert [path.name for path in Checkpoints(folder / "checkpoints").paths()] == [
        "step-000000000010.safetensors",
        "step-000000000015.safetensors",
    ]
    assert_identical(state(Pipeline.load(folder).network), state(model.network))
    config = json.loads((folder / "config.json").read_text())
    assert config["recipe"]["because"] == "the loss was named"
    assert config["settings"]["epochs"] == 3
    assert config["plan"]["loss"] == "hcl"
    assert config["data"]["training_rows"] == 36
    assert set(config["metrics"]) == {"valid", "test"}
    assert config["training"]["steps"] == 15
    assert set(config["versions"]) == {"hierlearn", "torch", "numpy", "python"}


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(problem(), plan(), reporting=QUIET)
    assert names(tmp_path) == []


def test_the_same_plan_gives_the_same_files(tmp_path):
    for name in ("one", "two"):
        train(
            problem(),
            plan("hcl", dropout=0.3, ensemble_size=2),
            out=tmp_path / name,
            reporting=QUIET,
        )
    one, two = (tmp_path / name / "model.safetensors" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert read_records(tmp_path / "one") == read_records(tmp_path / "two")


def test_torchs_own_generator_is_left_alone():
    before = torch.get_rng_state()
    train(problem(), plan(dropout=0.5), reporting=QUIET)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_plan_the_labels_decide():
    said = []
    dataset = without_splits(problem(rows=30))
    model = train(
        dataset,
        Plan(settings={"epochs": 1, "device": "cpu"}),
        reporting=Reporting(bar=False, on_message=said.append),
    )
    assert said == [
        "model: a memory of the training rows, trained in seconds, because inputs are "
        "numbers, and every training row has one path; 30 training rows, 0 for validation\n"
        "details: recipe quick, a memory (euclidean distance / 1, 256 neighbors, batches "
        "of 30 rows compared with each other), trained by bce, decoder leaf, 1 epoch, 1 network "
        "on cpu"
    ]
    assert model.config["recipe"]["name"] == "quick"
    assert model.config["metrics"] == {}


def test_a_share_for_validation_is_measured_too():
    chosen = Plan(
        loss="bce", valid_fraction=0.2, settings={"epochs": 2, "patience": 1, "device": "cpu"}
    )
    dataset = without_splits(problem())
    model = train(dataset, chosen, reporting=QUIET)
    assert model.config["data"]["validation_rows"] == 12
    assert set(model.config["metrics"]) == {"valid"}
    best = model.config["training"]["best_value"][0]
    held = dataset.take(model.seen.find_held_out(row_digests(model, dataset.inputs)))
    assert evaluate(model, held, ["au-prc"])["au-prc"] == pytest.approx(best)


def test_early_stopping_keeps_the_best_weights(tmp_path):
    chosen = plan("bce", patience=2, epochs=25, learning_rate=0.05, metric="hit@1")
    model = train(problem(rows=80, spread=1.0), chosen, out=tmp_path, reporting=QUIET)
    figures = [record["valid"]["hit@1"][0] for record in read_records(tmp_path)]
    training = model.config["training"]
    assert training["best_epoch"] == [figures.index(max(figures)) + 1]
    assert len(figures) == training["best_epoch"][0] + 2 < 25
    held = problem(rows=80, spread=1.0).split("valid")
    assert evaluate(model, held, ["hit@1"])["hit@1"] == pytest.approx(max(figures))


def test_on_prepared_is_called_before_the_first_step_and_metadata_is_kept(tmp_path):
    seen = []

    def ready(beginning):
        said = "36 training rows" in beginning.summary
        seen.append((beginning.settings.epochs, said, (tmp_path / "m" / "config.json").exists()))

    model = train(
        problem(),
        plan(),
        out=tmp_path / "m",
        reporting=Reporting(bar=False, on_prepared=ready),
        metadata={"license": "MIT"},
    )
    assert seen == [(3, True, False)]
    assert model.config["license"] == "MIT"


def test_weights_of_rows_matter():
    dataset = problem()
    plain = train(dataset, plan("leaf-ce"), reporting=QUIET)
    weights = np.where(np.arange(60) % 2, 5.0, 0.1)
    weighted = train(dataset, plan("leaf-ce"), weights=weights, reporting=QUIET)
    assert not torch.equal(last_layer(plain.network).weight, last_layer(weighted.network).weight)


# ---------------------------------------------------------------------- folders that exist


def test_a_folder_that_exists_is_refused_and_replaced_with_force(tmp_path):
    train(problem(), plan("hcl"), out=tmp_path / "m", reporting=QUIET)
    with pytest.raises(
        HierlearnError,
        match=r"m exists; pass force=True to replace the model in it, or resume=True to resume",
    ):
        train(problem(), plan("bce", epochs=1), out=tmp_path / "m", reporting=QUIET)
    model = train(problem(), plan("bce", epochs=1), out=tmp_path / "m", force=True, reporting=QUIET)
    assert len(Checkpoints(tmp_path / "m" / "checkpoints").paths()) == 1
    assert len(read_records(tmp_path / "m")) == 1
    assert_identical(state(Pipeline.load(tmp_path / "m").network), state(model.network))


def test_a_plan_that_fails_leaves_the_old_model_even_with_force(tmp_path):
    model = train(problem(), plan("hcl"), out=tmp_path / "m", reporting=QUIET)
    wrong = plan("mixed", options={"parts": 3})
    with pytest.raises(HierlearnError, match="cannot be made"):
        train(problem(), wrong, out=tmp_path / "m", force=True, reporting=QUIET)
    with pytest.raises(HierlearnError, match="cannot be imported"):
        Plan(network="no.such:thing", settings={"epochs": 1})
    assert_identical(state(Pipeline.load(tmp_path / "m").network), state(model.network))
    assert names(tmp_path / "m") == FOLDER


def test_a_training_that_was_cut_may_be_replaced(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "log.jsonl").write_text("")  # it did not get any further
    train(problem(), plan(), out=tmp_path / "m", force=True, reporting=QUIET)
    assert names(tmp_path / "m") == FOLDER


def test_a_folder_of_other_things_is_never_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    for force in (False, True):
        with pytest.raises(HierlearnError, match=r"exists; pass force=True|holds no model"):
            train(problem(), plan(), out=tmp_path, force=force, reporting=QUIET)
    assert names(tmp_path) == ["thesis.tex"]


def test_a_restart_by_torchrun_goes_on_only_where_a_training_began(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(HierlearnError, match="exists; pass force=True"):
        train(problem(), plan(), out=tmp_path, reporting=QUIET)
    first = train(problem(), plan(), out=tmp_path / "m", reporting=QUIET)
    again = train(problem(), plan(), out=tmp_path / "m", reporting=QUIET)  # finished already
    assert_identical(state(first.network), state(again.network))


def test_what_a_killed_process_left_of_a_model_goes(tmp_path):
    model = train(problem(), plan(), out=tmp_path, reporting=QUIET)
    left = tmp_path / stray_name("new")
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    (tmp_path / stray_name("part")).write_bytes(b"half")
    save_into(model, tmp_path)
    assert names(tmp_path) == FOLDER


def test_the_configuration_is_written_last(tmp_path, monkeypatch):
    from pathlib import Path

    order, replace = [], Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, other: order.append(Path(other)) or replace(self, other)
    )
    train(problem(), plan(), out=tmp_path / "m", reporting=QUIET)
    assert [path.name for path in order if path.parent == tmp_path / "m"][-1] == "config.json"
