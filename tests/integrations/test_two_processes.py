"""Hugging Face's Trainer on two processes with accumulation, against one process without."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from integrations import trainer_worker

TESTS = Path(__file__).parents[1]
NAMES = ("bce", "leaf-ce", "hxe")


@pytest.mark.slow
def test_a_step_is_the_same_however_its_rows_are_divided(tmp_path):
    """Two processes with two batches of two rows each, of which some do not count."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = [str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, *command, trainer_worker.__file__, tmp_path, ",".join(NAMES)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        two = json.loads((tmp_path / f"{name}.json").read_text())
        one = trainer_worker.train(name, tmp_path, 8, 1)
        assert two["losses"] == pytest.approx(one["losses"], abs=1e-5)
        assert two["weights"] == pytest.approx(one["weights"], abs=1e-3)
