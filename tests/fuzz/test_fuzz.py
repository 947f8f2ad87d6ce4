"""A bounded, seeded run of the fuzzers; ``make fuzz`` runs them for HIERLEARN_FUZZ_SECONDS."""

import os
import time

import pytest

from fuzz.commands import prepare_command
from fuzz.engine import Tally, run_case
from fuzz.folders import FOLDERS, Examples
from fuzz.formats import FORMATS

BUDGET = float(os.environ.get("HIERLEARN_FUZZ_SECONDS", "0"))  # of all; 0: the number of cases
FIRST = int(os.environ.get("HIERLEARN_FUZZ_SEED", "0"))
CASES = {**dict.fromkeys(FORMATS, 120), "model": 60, "checkpoint": 20, "study": 40, "command": 40}


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    return Examples(tmp_path_factory.mktemp("examples"))


def maker(name, folder, examples):
    if name in FORMATS:
        return lambda rng: FORMATS[name].prepare(rng, folder)
    make = FOLDERS.get(name, prepare_command)
    return lambda rng: make(rng, folder, examples)


@pytest.mark.parametrize("name", CASES)
def test_nothing_but_one_sentence(name, tmp_path, examples, monkeypatch):
    for one in ("HIERLEARN_CACHE", "HIERLEARN_DATA"):
        monkeypatch.setenv(one, str(tmp_path / "cache"))
    prepare, tally = maker(name, tmp_path, examples), Tally()
    end = time.monotonic() + BUDGET / len(CASES)
    seed = FIRST
    while seed < FIRST + CASES[name] or (BUDGET and time.monotonic() < end):
        run_case(name, seed, prepare, tally)
        seed += 1
    assert not tally.failures, "\n".join(f"{one.seed}: {one.reason}" for one in tally.failures[:20])
    assert tally.refused  # a mutation that is never refused mutates nothing
