"""Which methods a study holds: some are added later, some are left out; and what each one costs."""

import numpy as np
import pytest

from hierlearn.datasets import Dataset
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import Hierarchy
from hierlearn.lab import candidates
from hierlearn.lab import runner as module
from hierlearn.lab.compare import StudyWarning, run_study
from hierlearn.lab.protocol import Protocol
from hierlearn.lab.study import Study, StudyError
from hierlearn.registry import Registry
from lab.small_studies import WORDS, dataset, protocol, run, without_seconds


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return run(tmp_path_factory.mktemp("study") / "s")


def test_methods_can_be_added_to_a_study(study, tmp_path, monkeypatch):
    run(tmp_path / "s", WORDS[:2])
    whole, trained = module.prepare, []
    monkeypatch.setattr(module, "prepare", lambda *w, **o: trained.append(1) or whole(*w, **o))
    again = run(tmp_path / "s", [WORDS[0], WORDS[2], WORDS[1]])
    assert len(trained) == 1  # the new one
    assert [one.key for one in again.candidates] == [WORDS[0], WORDS[2], WORDS[1]]
    assert without_seconds(again) == without_seconds(study)
    assert [one.key for one in Study.open(tmp_path / "s").finished] == [
        one.key for one in again.candidates
    ]
    for words in ([WORDS[1], WORDS[0], WORDS[2]], WORDS[:2]):  # another reference; one is missing
        with pytest.raises(StudyError, match=r"another study \(its candidates.* differ\)"):
            run(tmp_path / "s", words)


def dag():
    """Return a dataset whose class "both" has two parents."""
    edges = [("a", "both"), ("b", "both"), ("a", "only"), ("b", "own")]
    hierarchy = Hierarchy.from_edges(edges)
    draw = np.random.default_rng(0)
    names = [("both", "only", "own")[number] for number in draw.integers(0, 3, 90)]
    numbers = np.arange(90)
    return Dataset(
        inputs=draw.normal(size=(90, 4)).astype(np.float32),
        labels=[[name] for name in names],
        hierarchy=hierarchy,
        splits={"train": numbers[:50], "valid": numbers[50:70], "test": numbers[70:]},
        name="dag",
    )


def test_of_all_what_cannot_be_trained_is_left_out(tmp_path, monkeypatch):
    few = {name: candidates.LOSSES[name] for name in ("bce", "hinge", "focal")}
    losses = Registry("loss", few, group="none", expected="a loss", read=lambda *_: None)
    monkeypatch.setattr(candidates, "LOSSES", losses)
    monkeypatch.setattr(candidates, "RECIPES", {"flat": candidates.RECIPES["flat"]})
    monkeypatch.setattr(candidates, "VARIANTS", ())
    with pytest.warns(StudyWarning, match="hinge is left out: HingeLoss needs a tree"):
        found = run_study(dag(), ["all"], tmp_path / "s", protocol())
    assert [one.key for one in found.finished] == ["flat", "bce", "focal"]
    parsed = candidates.parse_candidates(["all"])  # as the command line does
    with pytest.warns(StudyWarning, match="hinge is left out: HingeLoss needs a tree"):
        run_study(dag(), parsed, tmp_path / "parsed", protocol())
    with pytest.raises(HierlearnError, match="HingeLoss needs a tree"):
        run_study(dag(), ["bce", "hinge"], tmp_path / "named", protocol())

    def refuse(*words, **options):
        raise HierlearnError("not these rows")

    monkeypatch.setattr(module, "prepare", refuse)
    with pytest.raises(HierlearnError, match="no method can be trained on these rows: not these"):
        run_study(dag(), ["all"], tmp_path / "none", protocol())
    assert Study.open(tmp_path / "none").runs() == []


def test_runs_tell_their_size_and_how_long_the_processor_worked(study):
    inputs, classes = dataset().inputs.shape[1], len(study.hierarchy)
    for one in study.runs():
        assert one["parameters"] == (inputs + 1) * 8 + 9 * classes
        assert one["stored"] == 0
        assert one["cpu_seconds"] > 0


def test_remembered_rows_are_stored_not_learned(tmp_path):
    found = run(tmp_path / "s", ["quick"], settings={"epochs": 1})
    rows = len(dataset().splits["train"])
    for one in found.runs():
        assert one["stored"] % rows == 0
        assert one["stored"] > 0


def test_what_trains_nothing_is_made_once_for_all_seeds(tmp_path):
    plainly = Protocol(seeds=2, settings={"device": "cpu"})
    found = run_study(dataset(), ["nearest", "linear"], tmp_path / "s", plainly)
    assert [one.key for one in found.finished] == ["nearest", "linear"]
    first, second = found.runs_of(found.candidates[0])
    assert {**first, "seed": 1} == second
    rows = found.rows(found.candidates[0])
    assert (rows["argmax"][0] == rows["argmax"][1]).all()


def test_a_scale_that_is_learned_is_one_of_every_seed(tmp_path):
    found = run(tmp_path / "s", ["nearest"], network={})  # with epochs, and so with gradients
    first, second = found.runs_of(found.candidates[0])
    assert (first["seed"], second["seed"]) == (0, 1)
    assert first["test"] != second["test"]
