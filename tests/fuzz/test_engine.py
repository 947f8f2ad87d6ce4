"""The fuzzers find a planted fault, shrink what they found, and keep to their limits."""

import time

import pytest

from fuzz import cases, engine
from fuzz.cases import COMMAND_LINES, Case, explore
from fuzz.engine import judge
from fuzz.mutations import apply_edits, several_byte_edits
from hierlearn.cli import commands
from hierlearn.errors import HierlearnError


def test_a_planted_fault_is_found_and_shrunk(tmp_path, monkeypatch):
    def prepare(edits, folder, examples):
        content = apply_edits(b"hierlearn", edits)
        return lambda: {}["odd"] if b"\n" in content else None, len(content)

    monkeypatch.setitem(cases.CASES, "csv", Case(several_byte_edits, prepare))
    seen = []

    def on_outcome(edits, outcome):
        if outcome.reason is not None:
            seen.append((edits, outcome.reason))
        assert outcome.reason is None

    with pytest.raises(AssertionError):
        explore("csv", tmp_path, None, on_outcome, max_examples=200)
    edits, reason = seen[-1]
    assert reason.startswith("KeyError at ")
    assert len(edits) == 1  # one edit is enough, whatever was drawn first


def test_the_same_seed_draws_the_same_cases(tmp_path, monkeypatch):
    monkeypatch.setitem(cases.CASES, "csv", Case(several_byte_edits, lambda *_: (lambda: None, 1)))
    drawn = []
    for first in (0, 0, 1):
        found = []
        explore(
            "csv", tmp_path, None, lambda one, _, to=found: to.append(one), first, max_examples=8
        )
        drawn.append(found)
    assert drawn[0] == drawn[1] != drawn[2]


def test_every_command_is_drawn():
    found = set()
    for name, one in commands().commands.items():
        inner = getattr(one, "commands", None)
        found |= {name} if inner is None else {f"{name} {other}" for other in inner}
    assert found - set(COMMAND_LINES) == {
        "demo",
        "data fetch",
        "paper",
    }  # which download, or take long


def test_what_computes_for_too_long_fails_and_what_waits_for_others_does_not(monkeypatch):
    monkeypatch.setattr(engine, "TIME", 0.2)

    def compute():
        while True:
            pass

    assert judge(compute, 1).reason.startswith("more than 0.2 s at ")
    assert judge(lambda: time.sleep(0.4), 1).reason is None
    monkeypatch.setattr(engine, "LOAD", 1)
    assert judge(lambda: time.sleep(5), 1).reason.startswith("more than 0.2 s at ")


def test_only_one_sentence_is_a_refusal():
    def refuse(message):
        def work():
            raise HierlearnError(message)

        return judge(work, 1)

    assert not refuse("a.csv is empty").accepted
    assert refuse("a.csv is empty").reason is None
    assert "a message of" in refuse("one\ntwo").reason
