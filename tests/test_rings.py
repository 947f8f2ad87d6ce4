"""The first ring leaves out cases, never a test; a case that is named runs."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from conftest import CASES

TESTS = Path(__file__).parent
FILE = TESTS / "decoding" / "test_oracles.py"


def collected(*arguments):
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *map(str, arguments)]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_the_first_ring_has_some_cases_of_every_test():
    everything = collected(FILE, "--all")
    first = collected(FILE)
    assert set(first) < set(everything)
    all_cases = Counter(one.partition("[")[0] for one in everything)
    kept = Counter(one.partition("[")[0] for one in first)
    assert kept == {test: min(cases, CASES) for test, cases in all_cases.items()}
    left_out = next(one for one in everything if one not in first)
    assert collected(left_out) == [left_out]
