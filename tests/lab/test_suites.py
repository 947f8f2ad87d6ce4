"""Suites: one study per set that is there, ranks over them, and the figures in print."""

import csv
import json
from importlib.resources import files

import pytest

from hierlearn.datasets import DATASETS
from hierlearn.errors import HierlearnError
from hierlearn.lab import compare as compare_module
from hierlearn.lab import runner
from hierlearn.lab.protocol import Protocol
from hierlearn.lab.study import Study
from hierlearn.lab.suites import (
    SUITES,
    Suite,
    as_markdown,
    best_published,
    compare_suite,
    load_set,
    read_published,
)
from lab.tiny_suite import FAST, NETWORK, write_set

METHODS = ("flat", "hcl", "auto")


@pytest.fixture(autouse=True)
def no_files_of_the_user(tmp_path, monkeypatch):
    monkeypatch.delenv("HIERLEARN_DATA", raising=False)
    monkeypatch.setenv("HIERLEARN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for seed, name in enumerate(("diatoms", "imclef07d", "cellcycle_fun")):
        write_set(folder, name, seed)
    return folder


def protocol(**changes):
    return Protocol(**{"seeds": 2, "settings": FAST, "network": NETWORK, **changes})


def run(folder, data, methods=METHODS, **options):
    return compare_suite("clus", folder, methods, protocol(), data_dir=data, **options)


def test_every_set_that_is_there_is_a_study_and_the_others_are_listed(tmp_path, data):
    said = []
    found = run(tmp_path / "out", data, on_message=said.append)
    assert [one["name"] for one in found["sets"]] == ["diatoms", "imclef07d", "cellcycle_fun"]
    assert len(found["absent"]) == len(SUITES["clus"].datasets) - 3
    assert found["absent"]["enron"] == f"its files are not in {data}"
    assert said[0] == "diatoms: 60 rows, 5 classes"
    for one in found["sets"]:
        study = Study.open(tmp_path / "out" / one["name"])
        for candidate in study.candidates:
            values = study.values(candidate, "au-prc")
            assert one["figures"][candidate.key]["mean"] == pytest.approx(sum(values) / 2)
            assert one["figures"][candidate.key]["seconds"] > 0
    assert found["sets"][0]["figures"]["auto"]["recipe"] == "quick"
    assert found == json.loads((tmp_path / "out" / "suite.json").read_text())
    assert (tmp_path / "out" / "suite.md").read_text() == as_markdown(found)
    assert (tmp_path / "out" / "diatoms" / "report.html").is_file()


def test_ranks_are_those_of_the_studies(tmp_path, data):
    found = run(tmp_path / "out", data)
    assert found["ranks"]["datasets"] == ["diatoms", "imclef07d", "cellcycle_fun"]
    assert found["ranks"]["candidates"] == list(METHODS)
    assert sum(found["ranks"]["mean_ranks"]) == pytest.approx(6)
    assert found["no_ranks"] is None
    alone = run(tmp_path / "alone", data, ["flat"])
    assert alone["ranks"] is None
    assert "at least two losses" in alone["no_ranks"]


def test_an_interrupted_suite_goes_on_with_what_is_missing(tmp_path, data, monkeypatch):
    whole, trained = runner.prepare, []

    def stop_at_the_third(*words, **options):
        trained.append(1)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return whole(*words, **options)

    monkeypatch.setattr(runner, "prepare", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", data, ["flat", "hcl"])
    monkeypatch.setattr(runner, "prepare", lambda *w, **o: trained.append(2) or whole(*w, **o))
    found = run(tmp_path / "out", data, ["flat", "hcl"])
    assert trained.count(2) == 4  # six, of which two were finished
    assert run(tmp_path / "out", data, ["flat", "hcl"]) == found
    assert trained.count(2) == 4


def test_a_set_that_raises_does_not_end_the_suite(tmp_path, data, monkeypatch):
    whole = compare_module.check_test_rows

    def refuse(dataset):
        if dataset.name == "diatoms":
            raise HierlearnError("a bad set")
        whole(dataset)

    monkeypatch.setattr(compare_module, "check_test_rows", refuse)
    found = run(tmp_path / "out", data, ["flat", "hcl"])
    assert [one["name"] for one in found["sets"]] == ["imclef07d", "cellcycle_fun"]
    assert found["absent"]["diatoms"] == "a bad set"


def test_a_method_that_cannot_be_trained_on_a_set_is_left_out_there(tmp_path, data, monkeypatch):
    whole = runner.prepare

    def refuse(dataset, plan, *words, **options):
        if dataset.name == "diatoms" and plan.recipe == "hcl":
            raise HierlearnError("not this set")
        return whole(dataset, plan, *words, **options)

    monkeypatch.setattr(runner, "prepare", refuse)
    found = run(tmp_path / "out", data, ["flat", "hcl", "max"])
    sets = {one["name"]: one for one in found["sets"]}
    assert sets["diatoms"]["left_out"] == {"hcl": "not this set"}
    assert set(sets["diatoms"]["figures"]) == {"flat", "max"}
    assert set(sets["imclef07d"]["figures"]) == {"flat", "hcl", "max"}
    assert found["ranks"]["candidates"] == ["flat", "max"]
    assert found["ranks_of_all"]["candidates"] == ["flat", "hcl", "max"]
    assert found["ranks_of_all"]["datasets"] == ["imclef07d", "cellcycle_fun"]
    for one in found["sets"]:
        for figure in one["figures"].values():
            assert figure["parameters"] > 0
            assert figure["cpu_seconds"] > 0


def test_a_set_that_no_method_can_be_trained_on_is_absent(tmp_path, data, monkeypatch):
    whole = runner.prepare

    def refuse(dataset, *words, **options):
        if dataset.name == "diatoms":
            raise HierlearnError("not this set")
        return whole(dataset, *words, **options)

    monkeypatch.setattr(runner, "prepare", refuse)
    found = run(tmp_path / "out", data, ["flat", "hcl"])
    assert found["absent"]["diatoms"] == "flat, hcl: not this set"
    assert [one["name"] for one in found["sets"]] == ["imclef07d", "cellcycle_fun"]
    assert found["ranks"]["datasets"] == ["imclef07d", "cellcycle_fun"]
    assert found["ranks_of_all"] is None  # they are the same
    alone = run(tmp_path / "alone", data, ["flat"])
    assert "only 'flat' is finished in every study" in alone["no_ranks"]


def test_the_first_method_can_be_left_out_of_a_set(tmp_path, data, monkeypatch):
    whole = runner.prepare

    def refuse(dataset, plan, *words, **options):
        if dataset.name == "diatoms" and plan.recipe == "flat":
            raise HierlearnError("not this set")
        return whole(dataset, plan, *words, **options)

    monkeypatch.setattr(runner, "prepare", refuse)
    found = run(tmp_path / "out", data, ["flat", "hcl"])
    assert set(found["sets"][0]["figures"]) == {"hcl"}
    assert "only 'hcl' is finished" in found["no_ranks"]
    assert found["ranks_of_all"]["datasets"] == ["imclef07d", "cellcycle_fun"]


def test_methods_are_added_to_a_suite(tmp_path, data, monkeypatch):
    run(tmp_path / "out", data, ["flat"])
    whole, trained = runner.prepare, []
    monkeypatch.setattr(runner, "prepare", lambda *w, **o: trained.append(1) or whole(*w, **o))
    found = run(tmp_path / "out", data, ["flat", "max"])
    assert len(trained) == 3
    assert all(set(one["figures"]) == {"flat", "max"} for one in found["sets"])


def test_validation_rows_are_training_rows_as_in_print(data):
    dataset = load_set(SUITES["clus"], "cellcycle_fun", data)
    assert {name: len(rows) for name, rows in dataset.splits.items()} == {"train": 56, "test": 20}


@pytest.mark.parametrize(
    ("suite", "methods", "message"),
    [
        ("clsu", None, "unknown suite 'clsu'; did you mean 'clus'"),
        ("clus", ["flta"], "unknown loss or recipe 'flta'; did you mean 'flat'"),
        ("clus", None, "no set of the suite clus could be run: 'diatoms', 'enron'"),
        (Suite("own", "mine", ("no-such",), ("flat",)), None, "has no dataset 'no-such'"),
    ],
)
def test_what_is_refused(tmp_path, suite, methods, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(HierlearnError, match=message):
        compare_suite(suite, tmp_path / "out", methods, data_dir=tmp_path / "empty")
    assert not (tmp_path / "out").exists()


def test_a_suite_of_ones_own_without_figures_in_print(tmp_path):
    suite = Suite(
        "own",
        "drawn rows",
        ("synthetic",),
        ("flat", "hcl"),
        metric="terminal-accuracy",
        options={"synthetic": {"rows": 120}},
    )
    found = compare_suite(suite, tmp_path / "out", None, protocol())
    (one,) = found["sets"]
    assert one["best_published"] is None
    assert set(one["figures"]) == {"flat", "hcl"}
    assert found["metric"] == "terminal-accuracy"


def one_set(name, best=None, left_out=None, **means):
    figures = {
        key: {"mean": mean, "seconds": 2.0, "cpu_seconds": 1.5, "parameters": 12345, "stored": None}
        for key, mean in means.items()
    }
    published = [best] if best else []
    return {
        **{"name": name, "figures": figures, "published": published, "best_published": best},
        "left_out": left_out or {},
    }


def test_the_page_has_every_figure_and_what_was_left_out():
    best = {"method": "DHN", "value": 0.768, "source": "a repository", "note": "n", "protocol": "p"}
    summary = {
        **{"description": "two sets", "protocol": "Trained.", "metric": "au-prc"},
        **{"candidates": ["flat", "auto"], "labels": ["flat", "auto"]},
        "sets": [
            one_set("a", best, flat=0.75, auto=0.8125),
            one_set("b", None, {"auto": "auto needs a tree"}, flat=0.5),
        ],
        **{"absent": {"c": "its files are not in D"}, "ranks": None, "no_ranks": "too few"},
        "ranks_of_all": {"datasets": ["a"], "verdict": "W."},
    }
    text = as_markdown(summary)
    assert "| | flat | auto | best in print |" in text
    assert "| [a](a/report.html) | 0.750 | **0.812** | 0.768 DHN |" in text
    assert "| [b](b/report.html) | **0.500** | – | – |" in text
    assert "No ranks: too few." in text
    assert "On the 1 sets on which all methods can be trained: W." in text
    assert "| flat | – | 2 | 2.0 | 1.5 | 12,345.0 | – |" in text
    assert "- c: its files are not in D\n- auto on b: auto needs a tree" in text
    assert "| a | DHN | 0.768 | a repository | p; n |" in text
    less = as_markdown({**summary, "metric": "lca-height"})
    assert "| [a](a/report.html) | **0.750** | 0.812 |" in less


# ---------------------------------------------------------------------- the registry and the file


def test_the_registry_names_what_exists():
    for name, suite in SUITES.items():
        assert suite.name == name
        assert len(set(suite.datasets)) == len(suite.datasets)
        assert any(one in DATASETS for one in suite.datasets)
    assert set(SUITES["clus"].datasets) <= set(DATASETS)


def test_every_published_figure_has_a_source_and_a_set():
    path = files("hierlearn.lab").joinpath("published", "clus.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 116
    for row in rows:
        assert row["dataset"] in SUITES["clus"].datasets
        assert row["source"]
        assert 0 < float(row["value"]) < 1
    assert {row["dataset"] for row in rows} == set(SUITES["clus"].datasets)


def test_the_best_published_figure_is_not_a_suspect_one():
    found = read_published(SUITES["clus"])
    assert best_published(found["diatoms"])["value"] == 0.768
    best = best_published(found["gasch2_go"])
    assert (best["method"], best["value"]) == ("DHN", 0.416)  # one of 0.465 is marked
    assert "top classes not evaluated" in best["protocol"]
    assert best_published([]) is None
