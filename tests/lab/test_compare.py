"""A study from end to end: what it keeps, how it goes on, and that test rows choose nothing."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from hierlearn.errors import HierlearnError
from hierlearn.lab import runner as module
from hierlearn.lab.candidates import parse_candidates
from hierlearn.lab.compare import compare, run_study
from hierlearn.lab.runner import with_test_rows
from hierlearn.lab.study import Study, StudyError
from hierlearn.lab.summary import as_markdown, summarize
from hierlearn.lab.tune import points_of, tune
from hierlearn.losses import LOSSES, CollapseWarning
from hierlearn.metrics import METRICS, Metric, hier_dist
from hierlearn.training.recipes import RECIPES, Recipe
from lab.small_studies import (
    WORDS,
    dataset,
    protocol,
    run,
    with_other_test_rows,
    without_seconds,
)


@pytest.fixture(autouse=True)
def recipes(monkeypatch):
    """A recipe that leaves an option of its loss open."""
    monkeypatch.setitem(RECIPES, "focal-max", Recipe("focal", "focal loss", link="max"))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return run(tmp_path_factory.mktemp("study") / "s")


def test_every_loss_and_seed_has_a_run(study):
    runs = Study.open(study.folder).runs()
    assert [(one["candidate"], one["seed"]) for one in runs] == [
        (key, seed) for key in WORDS for seed in (0, 1)
    ]
    for one in runs:
        assert {"hit@1", "accuracy", "au-prc"} <= set(one["test"])
        assert one["best_epoch"] >= 1


def test_candidates_as_they_are_written_and_no_protocol(tmp_path, monkeypatch):
    trained = []

    def stop(studies, *_):
        trained.extend(task.candidate for one in studies for task in one.tasks)

    monkeypatch.setattr("hierlearn.lab.compare.run_studies", stop)
    study = run_study(dataset(), ["bce", "hcl:floor=0.3"], tmp_path / "s")
    assert trained == parse_candidates(["bce", "hcl:floor=0.3"])
    assert study.candidates == trained
    assert study.seeds == list(range(10))
    with pytest.raises(HierlearnError, match="unknown loss or recipe 'hlc'; did you mean"):
        run_study(dataset(), ["bce", "hlc"], tmp_path / "t")
    with pytest.raises(HierlearnError, match="'bce' is listed twice"):
        run_study(dataset(), [*trained, "bce"], tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_the_stored_rows_give_the_figures_again(study):
    for candidate in study.candidates:
        rows = study.rows(candidate)
        assert rows["argmax"].shape == (2, len(study.truth()))
        for metric in study.config["metrics"]:
            assert (metric in rows) == METRICS[metric].per_row
            if metric in rows:
                found = np.nanmean(rows[metric], axis=1)
                assert found == pytest.approx(study.values(candidate, metric), rel=1e-6), metric


def test_the_stored_rows_are_those_of_the_stored_decisions(study):
    targets, hierarchy = study.truth().targets, study.hierarchy
    rows = study.rows(study.candidates[0])
    for metric, decision, cost in (
        ("hier-dist", "argmax", "height"),
        ("lca-height", "terminal", "zero"),
    ):
        scores = torch.zeros(targets.shape)
        scores[torch.arange(len(targets)), torch.from_numpy(rows[decision][1]).long()] = 1
        wanted = hier_dist(scores, targets, hierarchy, correct_cost=cost, reduction="none")
        assert rows[metric][1].tolist() == wanted.tolist()


def test_a_metric_registered_at_run_time_gets_its_interval(tmp_path, monkeypatch):
    def mine(scores, targets, label_space, *, reduction="mean"):
        rows = scores.double().amax(dim=1)
        return rows if reduction == "none" else rows.mean()

    monkeypatch.setitem(METRICS, "mine", Metric("mine", mine, unit="percent", per_row=True))
    study = run(tmp_path / "s", ["bce", "hxe"], metrics=("mine", "mistake-severity"))
    summary = summarize(study)
    for metric in ("mine", "mistake-severity"):
        for figure in summary["figures"][metric]:
            low, high = figure["interval"]
            assert low <= figure["mean"] <= high
            assert (low < high) or metric != "mine"
    assert f"| {100 * summary['figures']['mine'][0]['mean']:.2f} ±" in as_markdown(summary)


def test_a_metric_that_is_not_supported_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "fit", lambda *_: pytest.fail("it was trained"))
    wide = Metric("wide", hier_dist, min_candidates=1000)
    monkeypatch.setitem(METRICS, "wide", wide)
    with pytest.raises(HierlearnError, match="wide needs 1000 classes, but there are 84"):
        run(tmp_path / "s", ["bce"], metrics=("wide",))


def test_a_study_of_an_older_version_is_refused_and_may_be_replaced(study, tmp_path):
    shutil.copytree(study.folder, tmp_path / "s")
    path = tmp_path / "s" / "study.json"
    path.write_text(json.dumps({**study.config, "version": 1}))
    with pytest.raises(StudyError, match="has version 1 of the study format, and this hierlearn"):
        Study.open(tmp_path / "s")
    with pytest.raises(StudyError, match="reads version 2; run the study again in another folder"):
        run(tmp_path / "s")
    assert len(run(tmp_path / "s", ["bce"], seeds=1, force=True).runs()) == 1


def test_test_rows_without_a_label_are_refused(tmp_path):
    data = dataset()
    bare = [
        [] if row in set(data.splits["test"].tolist()) else one
        for row, one in enumerate(data.labels)
    ]
    with pytest.raises(HierlearnError, match="none of the 48 test rows has a label"):
        run(tmp_path / "s", data=replace(data, labels=bare))


def test_the_shares_of_severity_come_to_one(study):
    for shares in summarize(study)["severity"].values():
        assert sum(shares) == pytest.approx(1)
        assert len(shares) == study.hierarchy.root_height + 1


def test_an_interrupted_study_goes_on_where_it_was(study, tmp_path, monkeypatch):
    whole, trained = module.prepare, []

    def stop_at_the_second(*words, **options):
        trained.append(1)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return whole(*words, **options)

    monkeypatch.setattr(module, "prepare", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "s")
    assert {one["candidate"] for one in Study.open(tmp_path / "s").runs()} == {"bce"}
    monkeypatch.setattr(module, "prepare", lambda *w, **o: trained.append(2) or whole(*w, **o))
    again = run(tmp_path / "s")
    assert trained.count(2) == 2  # the two losses that were missing
    assert without_seconds(again) == without_seconds(study)


def test_a_last_line_that_was_cut_off_is_done_again(study, tmp_path):
    again = run(tmp_path / "s")
    path = again.folder / "runs.jsonl"
    path.write_text(path.read_text()[:-40])
    assert not again.is_done(again.candidates[-1])
    assert run(tmp_path / "s").is_done(again.candidates[-1])


def test_another_study_is_not_written_over(study, tmp_path):
    run(tmp_path / "s", ["bce"], seeds=1)
    with pytest.raises(StudyError, match=r"another study \(its seeds.* differ\)"):
        run(tmp_path / "s", ["bce"], seeds=2)
    again = run(tmp_path / "s", ["bce"], seeds=2, force=True)
    assert len(again.runs()) == 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(StudyError, match="exists and holds no study"):
        run(tmp_path / "other")


def test_a_seed_is_the_same_alone_and_among_others(study, tmp_path):
    alone = run(tmp_path / "s", ["bce"], seeds=1, seed=1)
    together = next(one for one in study.runs() if one["candidate"] == "bce" and one["seed"] == 1)
    assert alone.runs()[0]["test"]["hit@1"] == pytest.approx(together["test"]["hit@1"], abs=0.03)
    assert alone.runs()[0]["test"]["au-prc"] == pytest.approx(together["test"]["au-prc"], abs=1e-3)


def test_tuning_does_not_look_at_test_rows():
    data = dataset()
    found = [
        tune(
            one,
            parse_candidates(["bce", "hxe"]),
            2,
            protocol(),
        )
        for one in (data, with_other_test_rows(data))
    ]
    assert found[0] == found[1]
    assert set(found[0]["by_candidate"]) == {"bce", "hxe"}
    assert len(found[0]["trials"]) == 4


def test_the_search_space_is_that_of_the_loss_less_what_is_fixed():
    def options(text):
        points = points_of(parse_candidates([text])[0], 100)
        assert {point["learning_rate"] for point in points} == {3e-4, 1e-3, 3e-3}
        return {tuple(point.get("loss_options", {}).items()) for point in points}

    assert options("bce") == options("hcl-paper") == options("hxe:alpha=0.2") == {()}
    assert options("hxe") == {(("alpha", value),) for value in LOSSES["hxe"].search_space["alpha"]}
    assert options("hcl") == {()}  # the recipe fixes the floor
    assert options("focal-max") == {(("gamma", g),) for g in (0.5, 1.0, 2.0)}


def test_a_recipe_is_tuned_by_the_options_of_its_loss(tmp_path):
    candidates = parse_candidates(["focal-max"])
    found = tune(dataset(), candidates, 1, protocol(settings={"epochs": 1}))
    chosen = found["by_candidate"]["focal-max"]
    study = run(tmp_path / "s", ["focal-max"], by_candidate=found["by_candidate"], seeds=1)
    assert study.runs()[0]["loss_options"] == chosen["loss_options"]
    assert study.runs()[0]["settings"]["learning_rate"] == chosen["learning_rate"]


def test_rows_to_test_on_are_set_aside_once():
    data = dataset()
    assert with_test_rows(data, 0.2, 0)[0] is data
    bare = replace(data, splits={})
    made, said = with_test_rows(bare, 0.25, 3)
    assert said == "; 60 rows set aside for testing"
    parts = [made.splits[name] for name in ("train", "test")]
    assert sorted(np.concatenate(parts).tolist()) == list(range(240))
    assert (with_test_rows(bare, 0.25, 3)[0].splits["test"] == made.splits["test"]).all()
    with pytest.raises(HierlearnError, match=r"a fraction of 0.001 of 240 rows is 0 rows"):
        with_test_rows(bare, 0.001, 0)


def test_in_python_rows_to_test_on_are_set_aside_as_by_the_command(tmp_path):
    bare = replace(dataset(), splits={})
    once = protocol(seeds=1, seed=3)
    study = compare(bare, ["bce"], tmp_path / "a", once)
    own = run_study(with_test_rows(bare, 0.2, 3)[0], ["bce"], tmp_path / "b", once)
    found = [without_seconds(one) for one in (study, own)]
    assert found[0] == found[1]
    assert (tmp_path / "a" / "report.html").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"splits": {}}, "has no split 'test' to evaluate on"),
        ({"metrics": ["hit@9"]}, "unknown metric 'hit@9'"),
    ],
)
def test_what_is_refused(change, message, tmp_path):
    data = dataset()
    if "splits" in change:
        data, change = replace(data, splits={}), {}
    with pytest.raises(HierlearnError, match=message):
        run(tmp_path / "s", data=data, **change)


def test_a_damaged_folder_is_named(tmp_path):
    with pytest.raises(StudyError, match=r"there is no study.json in it"):
        Study.open(tmp_path)
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(StudyError, match="is damaged: it is not JSON"):
        Study.open(tmp_path)
    (tmp_path / "study.json").write_text(json.dumps({"format": "x"}))
    with pytest.raises(StudyError, match="was not written by hierlearn"):
        Study.open(tmp_path)


def test_a_summary_of_what_is_finished(study):
    found = summarize(study)
    assert found["candidates"] == list(WORDS)
    assert found["missing"] == []
    first = found["figures"]["hit@1"][0]
    assert first["p"] is None
    assert first["mean"] == pytest.approx(np.mean(study.values(study.candidates[0], "hit@1")))
    low, high = first["interval"]
    assert low <= first["mean"] <= high
    for metric, column in found["figures"].items():
        best = [one for one in column if one["best"]]
        assert len(best) == (0 if METRICS[metric].direction == "none" else 1)


def test_a_collapse_is_told_once_for_all_seeds(tmp_path):
    with pytest.warns(CollapseWarning, match=r"^hcl-paper: \d+ of 84 classes") as told:
        run(tmp_path / "s", words=("hcl-paper",), settings={"epochs": 6, "patience": None})
    assert len(told) == 1


def test_other_data_of_the_same_shape_is_another_study(study, tmp_path):
    shutil.copytree(study.folder, tmp_path / "s")
    data = dataset()
    inputs = data.inputs.copy()
    inputs[0, 0] += 1
    with pytest.raises(StudyError, match="holds another study"):
        run(tmp_path / "s", data=replace(data, inputs=inputs))
    labels = [list(row) for row in data.labels]
    labels[0], labels[1] = labels[1], labels[0]
    with pytest.raises(StudyError, match="holds another study"):
        run(tmp_path / "s", data=replace(data, labels=labels))
    assert run(tmp_path / "s").runs() == study.runs()


@pytest.mark.parametrize("words", [("hcl:nope=1",), ("bce", "loss:hcl:floor=7")])
def test_what_is_refused_before_anything_is_trained_is_in_nobodys_way(words, tmp_path):
    with pytest.raises(HierlearnError, match=r"nope|floor"):
        run(tmp_path / "s", words=tuple(reversed(words)))
    assert len(run(tmp_path / "s", words=("bce",), seeds=1).runs()) == 1  # the corrected command


def test_splits_of_other_names_are_not_passed_over():
    data = dataset()
    holdout = {"train": data.splits["train"], "holdout": data.splits["test"]}
    with pytest.raises(HierlearnError, match=r"none of the splits 'train', 'holdout' is called"):
        with_test_rows(replace(data, splits=holdout), 0.2, 0)
    empty = {"train": np.zeros(0, dtype=np.int64), "valid": data.splits["valid"]}
    with pytest.raises(HierlearnError, match="there are no training rows"):
        with_test_rows(replace(data, splits=empty), 0.2, 0)
