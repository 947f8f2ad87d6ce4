"""Hugging Face's Trainer on two processes with accumulation, against one process without."""

import json

import pytest

from integrations import trainer_worker
from two_processes import launch

NAMES = ("bce", "leaf-ce", "hxe")


@pytest.mark.slow
def test_a_step_is_the_same_however_its_rows_are_divided(tmp_path):
    """Two processes with two batches of two rows each, of which some do not count."""
    done = launch(trainer_worker.__file__, tmp_path, ",".join(NAMES), seconds=300)
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        two = json.loads((tmp_path / f"{name}.json").read_text())
        one = trainer_worker.train(name, tmp_path, 8, 1)
        assert two["losses"] == pytest.approx(one["losses"], abs=1e-5)
        assert two["weights"] == pytest.approx(one["weights"], abs=1e-3)
