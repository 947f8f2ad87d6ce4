"""A part of the fault matrix; ``make faults`` runs all of it."""

import json
import os
import subprocess
import sys

import pytest

import warm
from faults import fault_matrix

FEW = {  # one of so many faults
    "train --force": 30,
    "remember --in-place": 20,
    "forget --in-place": 20,
    "compare": 40,
}


def run_matrix(folder, *words):
    paths = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*warm.python(), fault_matrix.__file__, folder, *words],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


SLOW = ("train --force", "compare")


@pytest.mark.parametrize(
    "job", [pytest.param(job, marks=[pytest.mark.slow] * (job in SLOW)) for job in FEW]
)
def test_some_faults_leave_the_old_or_the_new(tmp_path, job):
    found, said = run_matrix(tmp_path, job, "--every", str(FEW[job]), "--seed", "1")
    assert found[job]["failures"] == {}, said
    assert sum(found[job]["faults"].values()) >= 3


def test_the_matrix_notices_a_write_that_is_not_atomic(tmp_path):
    """A file that is written in place is half there after a kill: the matrix must say so."""
    code = (
        "import sys; from pathlib import Path; from faults import fault_matrix as m\n"
        "from hierlearn.files import writing\n"
        "def run(folder):\n"
        "    path = folder / 'a.txt'\n"
        "    text = path.read_text() if path.exists() else ''\n"
        "    if '2' not in text:\n"
        "        writing.append_text(path, '1\\n')\n"
        "        writing.append_text(path, '2\\n')\n"
        "m.JOBS = {'job': m.Job(run)}\n"
        "print(m.run_job('job', Path(sys.argv[1]) / 'root')['failures'])\n"
    )
    paths = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*warm.python(), "-c", code, tmp_path],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert "the next run ended otherwise: ['a.txt']" in done.stdout, done.stderr
