"""The trials of tune as jobs: kept, and run on any executor."""

import json
from pathlib import Path

import pytest

from hierlearn.errors import DataError
from hierlearn.lab.study import StudyError, check_folder
from hierlearn.lab.tune import read_value, run_trial, tune
from lab.small_studies import dataset, protocol, run

ONCE = {"epochs": 1, "patience": None}
NAMES = ["bce", "hxe"]


def search(**options):
    return tune(dataset(), NAMES, 3, protocol(settings=ONCE), **options)


@pytest.fixture(scope="module")
def expected():
    return search()


def test_the_best_trial_wins(expected):
    for key, chosen in expected["by_candidate"].items():
        own = [one for one in expected["trials"] if one["candidate"] == key]
        assert len({one["value"] for one in own}) > 1
        best = max(own, key=lambda one: one["value"])  # au-prc
        assert {"candidate": key, **chosen, "value": best["value"]} == best


@pytest.fixture
def counted(monkeypatch):
    """The points that are trained in this process."""
    found = []

    def counting(data, trial, on_step=None):
        found.append((trial.candidate.key, dict(trial.point)))
        return run_trial(data, trial, on_step)

    monkeypatch.setattr("hierlearn.lab.tune.run_trial", counting)
    return found


def test_trials_of_processes_are_those_of_one_after_the_other(expected):
    told = []
    assert search(executor=2, on_trial=lambda *step: told.append(step)) == expected
    assert told == [(number, 6) for number in range(1, 7)]


def test_an_interrupted_search_goes_on_with_what_is_missing(expected, counted, tmp_path):
    def stop(done, of):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(out=tmp_path / "s", on_trial=stop)
    assert len(list((tmp_path / "s" / "trials").iterdir())) == 4
    told = []
    assert search(out=tmp_path / "s", on_trial=lambda *step: told.append(step)) == expected
    assert len(counted) == 6
    assert told == [(4, 6), (5, 6), (6, 6)]
    assert search(out=tmp_path / "s") == expected
    assert len(counted) == 6


def test_a_trial_under_other_settings_is_another_one(counted, tmp_path):
    search(out=tmp_path)
    tune(dataset(), NAMES, 3, protocol(settings={**ONCE, "epochs": 2}), out=tmp_path)
    assert len(counted) == 12


def test_a_study_begins_where_its_trials_are(tmp_path):
    search(out=tmp_path / "s")
    check_folder(tmp_path / "s")
    study = run(tmp_path / "s", ["bce"], seeds=1, settings=ONCE)
    assert len(study.runs()) == 1
    (tmp_path / "t" / "trials").mkdir(parents=True)
    (tmp_path / "t" / "trials" / "thesis.tex").write_text("years")
    with pytest.raises(StudyError, match="exists and holds no study"):
        check_folder(tmp_path / "t")


@pytest.mark.parametrize("text", ["[]", '{"value": "high"}', "{}"])
def test_a_damaged_value_is_named(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=r"a\.json is damaged: it holds no value of a trial"):
        read_value(tmp_path / "a.json")


def test_what_is_kept_can_be_read_by_others(tmp_path):
    search(out=tmp_path)
    first = json.loads(next(Path(tmp_path / "trials").iterdir()).read_text())
    assert {"candidate", "learning_rate", "value"} <= set(first)
