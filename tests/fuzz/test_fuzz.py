"""The fuzzers, for a moment; ``make fuzz`` runs them for HIERLEARN_FUZZ_SECONDS.

Every run of the suite draws the same cases. A long run draws others, and keeps what failed in the
database of hypothesis, from which the next long run begins.
"""

import os
import time

import pytest

from fuzz.cases import CASES, COMMAND_LINES, database, explore
from fuzz.engine import Tally
from fuzz.folders import FOLDERS, Examples
from fuzz.formats import FORMATS

BUDGET = float(os.environ.get("HIERLEARN_FUZZ_SECONDS", "0"))  # of all; 0: a few cases
FIRST = int(os.environ.get("HIERLEARN_FUZZ_SEED", "0"))
FEW = {**dict.fromkeys(FORMATS, 20), "model": 15, "checkpoint": 8, "study": 8}
ROUND = 100  # cases between two looks at the clock


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    return Examples(tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize("name", CASES)
def test_nothing_but_one_sentence(name, tmp_path, examples, monkeypatch):
    for one in ("HIERLEARN_CACHE", "HIERLEARN_DATA"):
        monkeypatch.setenv(one, str(tmp_path / "cache"))
    tally = Tally()

    def on_outcome(drawn, outcome):
        tally.add(outcome)
        assert outcome.reason is None, outcome.reason

    if not BUDGET:
        explore(name, tmp_path, examples, on_outcome, max_examples=FEW.get(name, 2))
    end, first = time.monotonic() + share(name) * BUDGET, FIRST
    while time.monotonic() < end:
        options = {"max_examples": ROUND, "database": database(name), "print_blob": True}
        explore(name, tmp_path, examples, on_outcome, first, **options)
        first += 1
    if name not in COMMAND_LINES:
        assert tally.refused  # a mutation that is never refused mutates nothing


def share(name):
    """Return how much of the time a kind gets: a third for each of files, folders and commands."""
    kinds = (FORMATS, FOLDERS, COMMAND_LINES)
    return 1 / 3 / next(len(kind) for kind in kinds if name in kind)
