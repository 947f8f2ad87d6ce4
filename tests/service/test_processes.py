"""Several candidates at a time: the same runs, ends and errors as one after the other."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hierlearn.errors import HierlearnError
from hierlearn.lab.study import Study
from hierlearn.service.engine import count_cores, default_jobs, start_context
from lab import small_studies as small


def test_what_is_done_is_reported_as_done(tmp_path):
    small.run(tmp_path, words=("bce", "hxe"))
    told = []
    small.run(tmp_path, words=("bce", "hxe"), executor=2, on_step=lambda *step: told.append(step))
    assert told == [(0, 1, 1), (1, 1, 1)]


def test_an_error_of_a_task_is_raised_by_the_study(tmp_path):
    with pytest.raises(HierlearnError, match=r"became (nan|inf|-inf) in epoch"):
        small.run(tmp_path, executor=2, settings={"learning_rate": 1e30, "schedule": "constant"})
    assert not multiprocessing.active_children()


def test_a_killed_process_is_replaced_and_the_study_goes_on(tmp_path):
    killed = []

    def kill_one(number, step, of):
        if not killed:
            killed.append(multiprocessing.active_children()[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    longer = {"epochs": 20, "patience": None}
    study = small.run(tmp_path, executor=2, settings=longer, on_step=kill_one)
    assert killed
    assert [study.is_done(candidate) for candidate in study.candidates] == [True] * 3


UNGUARDED = """
import sys
from lab import small_studies as small
once = {"epochs": 1, "patience": None}
small.run(sys.argv[1], executor=2, words=("bce", "loss:hcl"), settings=once)
"""


def test_a_script_without_the_main_guard_is_told_so(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    places = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "script.py", "study"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1
    # Python's tracker of semaphores is a process of its own, and may complain after the error.
    lines = [one for one in done.stderr.splitlines() if one and "resource_tracker" not in one]
    assert 'outside of if __name__ == "__main__"' in lines[-1]


SCRIPT = """
import sys
from pathlib import Path
from lab import small_studies as small
if __name__ == "__main__":
    small.run(sys.argv[1], executor=2, words=("bce", "loss:hcl", "hxe"),
              settings={"epochs": int(sys.argv[2]), "patience": None},
              on_step=lambda number, step, of: Path(f"begun-{number}").touch())
"""


def descendants(pid):
    """Return the processes that a process has started, and those that these have started."""
    found = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True)
    pairs = [tuple(map(int, line.split())) for line in found.stdout.splitlines()]
    known = {pid}
    while more := {child for child, parent in pairs if parent in known} - known:
        known |= more
    return sorted(known - {pid})


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ps") is None, reason="no ps to see the processes with")
def test_an_interrupted_study_leaves_no_process_and_goes_on(tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "study"
    script.write_text(SCRIPT)
    path = os.pathsep.join(sys.path)
    words = [sys.executable, str(script), str(folder), "20000"]
    running = subprocess.Popen(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        begun = time.monotonic()
        while len(list(tmp_path.glob("begun-*"))) < 2 and time.monotonic() - begun < 240:
            time.sleep(0.1)  # until both are in the midst of the training
        workers = descendants(running.pid)
        assert len(workers) >= 2
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=240)
    finally:
        running.kill()  # where the test fails
    assert "KeyboardInterrupt" in errors
    begun = time.monotonic()  # one of them cleans up after the others, and goes last
    while workers and time.monotonic() - begun < 240:
        workers = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
        time.sleep(0.1)
    assert not workers
    study = Study.open(folder)
    assert [candidate.key for candidate in study.candidates] == ["bce", "loss:hcl", "hxe"]
    assert json.loads((folder / "study.json").read_text())["settings"]["epochs"] == 20_000


@pytest.mark.slow
def test_a_killed_study_goes_on_with_what_is_missing(tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "study"
    script.write_text(SCRIPT)
    running = subprocess.Popen(
        [sys.executable, str(script), str(folder), "40"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    begun = time.monotonic()
    while not (folder / "runs.jsonl").exists() and time.monotonic() - begun < 240:
        time.sleep(0.01)
    running.kill()
    running.wait()
    before = {run["candidate"]: run["seconds"] for run in Study.open(folder).runs()}
    assert before
    told, settings = [], {"epochs": 40, "patience": None}
    words = ("bce", "loss:hcl", "hxe")
    study = small.run(folder, words, settings=settings, on_step=lambda *one: told.append(one))
    after = {run["candidate"]: run["seconds"] for run in study.runs()}
    assert set(after) == set(words)
    assert {key: after[key] for key in before} == before  # not trained again
    done = [number for number, step, of in told if (step, of) == (1, 1)]
    assert [words[number] for number in done] == [key for key in words if key in before]


def test_the_default_number_of_jobs():
    assert default_jobs(8, "cuda") == 1
    assert default_jobs(1, "cpu") == 1
    assert default_jobs(100, "cpu") == min(8, count_cores())


@pytest.mark.skipif(os.name == "nt", reason="no server to fork from")
def test_processes_are_forks_of_a_server_only_on_a_cpu():
    assert start_context(gpu=False).get_start_method() == "forkserver"
    assert start_context(gpu=True).get_start_method() == "spawn"


def test_at_least_one(tmp_path):
    with pytest.raises(HierlearnError, match="executor must be at least 1 job at a time, not 0"):
        small.run(tmp_path, executor=0)
