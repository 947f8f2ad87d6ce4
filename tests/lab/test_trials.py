"""The trials of tune as jobs: kept, run on any executor, shared through a storage of Optuna."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hierlearn.errors import DataError, HierlearnError
from hierlearn.lab import shared_trials, trials
from hierlearn.lab.study import StudyError, check_folder
from hierlearn.lab.trial_files import read_value
from hierlearn.lab.tune import tune
from lab.small_studies import dataset, protocol, run

ONCE = {"epochs": 1, "patience": None}
NAMES = ["bce", "hxe"]


def search(**options):
    return tune(dataset(), NAMES, "each", protocol(trials=3, settings=ONCE), **options)


@pytest.fixture(scope="module")
def expected():
    return search()


@pytest.fixture
def counted(monkeypatch):
    """The points that are trained in this process."""
    found, whole = [], trials.run_trial

    def run_trial(data, trial, on_step=None):
        found.append((trial.candidate.key, dict(trial.point)))
        return whole(data, trial, on_step)

    monkeypatch.setattr(trials, "run_trial", run_trial)
    monkeypatch.setattr(shared_trials, "run_trial", run_trial)
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
    tune(dataset(), NAMES, "each", protocol(trials=3, settings={**ONCE, "epochs": 2}), out=tmp_path)
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


# ---------------------------------------------------------------------- Optuna


def opened(storage):
    """Return the only study of a storage."""
    optuna = pytest.importorskip("optuna")
    return optuna.load_study(study_name=None, storage=storage)


def ended(study):
    """Return the keys of the trials that have a value."""
    return [one.params["point"] for one in study.trials if one.state.name == "COMPLETE"]


@pytest.mark.parametrize("kind", ["database", "journal"])
def test_a_storage_gives_the_same_winner_and_is_not_run_twice(expected, counted, tmp_path, kind):
    pytest.importorskip("optuna")
    url = f"sqlite:///{tmp_path / 'tune.db'}" if kind == "database" else str(tmp_path / "tune.log")
    told = []
    assert search(storage=url, on_trial=lambda *step: told.append(step)) == expected
    assert len(counted) == 6
    assert told[-1] == (6, 6)
    assert search(storage=url) == expected
    assert len(counted) == 6


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from hierlearn.lab import shared_trials
from hierlearn.lab.tune import tune
from lab.small_studies import dataset, protocol

whole = shared_trials.run_trial

def slow(data, trial, on_step=None):
    with open("runs", "a") as file:
        file.write(f"{sys.argv[2]}\\n")
    if sys.argv[2] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    while not Path("here").exists():  # until the other process has taken one, too
        time.sleep(0.02)
    return whole(data, trial, on_step)

shared_trials.run_trial = slow
Path(f"ready-{sys.argv[2]}").touch()
while not Path("go").exists():
    time.sleep(0.02)
tune(dataset(), ["bce", "hxe"], "each",
     protocol(trials=3, settings={"epochs": 1, "patience": None}), storage=sys.argv[1])
"""


def start(folder, url, name):
    (folder / "script.py").write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, "script.py", url, name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def wait_until(condition):
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_two_processes_share_the_trials_of_one_storage(expected, counted, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    url, whole = f"sqlite:///{tmp_path / 'tune.db'}", shared_trials.run_trial

    def slow(*given):
        (tmp_path / "here").touch()
        wait_until((tmp_path / "runs").exists)  # until the other process has taken one, too
        return whole(*given)

    monkeypatch.setattr(shared_trials, "run_trial", slow)
    other = start(tmp_path, url, "other")
    wait_until((tmp_path / "ready-other").exists)
    (tmp_path / "go").touch()
    assert search(storage=url) == expected
    assert other.wait(240) == 0
    runs = (tmp_path / "runs").read_text().split()
    assert len(runs) > 0
    assert len(counted) > 0
    study = opened(url)
    assert len(ended(study)) == len(set(ended(study))) == len(runs) + len(counted) == 6


def test_the_trial_of_a_killed_process_is_run_again(expected, counted, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    url = f"sqlite:///{tmp_path / 'tune.db'}"
    (tmp_path / "go").touch()
    assert start(tmp_path, url, "dies").wait(240) < 0
    assert [one.state.name for one in opened(url).trials] == ["RUNNING"]
    monkeypatch.setattr(shared_trials, "SILENT_SECONDS", 3.0)
    monkeypatch.setattr(shared_trials, "BEAT_SECONDS", 0.1)
    time.sleep(3.1)
    assert search(storage=url) == expected
    assert len(counted) == 6
    states = [one.state.name for one in opened(url).trials]
    assert (states.count("COMPLETE"), states.count("FAIL")) == (6, 1)


def test_a_storage_that_cannot_be_opened(monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr(shared_trials, "ATTEMPTS", 1)
    with pytest.raises(HierlearnError, match=r"storage 'sqlite:////no/such/a.db' cannot be opened"):
        search(storage="sqlite:////no/such/a.db")


def test_optuna_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(HierlearnError, match="needs optuna; install it with: pip install optuna"):
        search(storage="tune.log")


def test_what_is_kept_can_be_read_by_others(tmp_path):
    search(out=tmp_path)
    first = json.loads(next(Path(tmp_path / "trials").iterdir()).read_text())
    assert {"candidate", "learning_rate", "value"} <= set(first)
