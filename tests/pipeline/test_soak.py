"""Many trainings in one process hold no more than a few: benchmarks/bench_soak.py has 1,000."""

import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from bench_soak import soak


@pytest.mark.slow
def test_thirty_trainings_leak_nothing(tmp_path, monkeypatch):
    own = tmp_path / "tmp"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    first, *_, last = soak(30, tmp_path, every=10)
    assert last["descriptors"] <= first["descriptors"]
    assert last["threads"] <= first["threads"]
    assert last["temporary_files"] == 0
    assert last["resident_mb"] - first["resident_mb"] < 30
