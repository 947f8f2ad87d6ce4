"""The figures of docs/study.md are those of benchmarks/results/study.json."""

import json
import sys
from pathlib import Path

import pytest

from hierlearn.lab import paper

REPO = Path(__file__).parents[1]
PAGE = (REPO / "docs" / "study.md").read_text()
FOUND = json.loads((REPO / "benchmarks" / "results" / "study.json").read_text())


@pytest.fixture(scope="module")
def made():
    sys.path.insert(0, str(REPO / "benchmarks"))
    try:
        from bench_study import tables

        return tables(FOUND)
    finally:
        sys.path.remove(str(REPO / "benchmarks"))


def test_tables_are_made_from_the_results(made):
    assert len(made) == 8
    for title, table in made.items():
        assert table.strip() in PAGE, title


def test_the_run_is_whole():
    for studies in (FOUND["paper"], FOUND["users"]):
        assert set(studies) == {"diatoms", "imclef07d"}
        for study in studies.values():
            assert study["seeds"] == 10
            assert study["missing"] == []
    assert len(FOUND["paper"]["diatoms"]["candidates"]) == 14


def test_the_page_begins_with_what_holds():
    said = paper.verdict(FOUND["paper"])
    assert PAGE.index(said) < PAGE.index("| loss |")
    assert len(said.splitlines()) == 10
    assert [one.candidate.key for one in paper.ROWS] == FOUND["paper"]["diatoms"]["candidates"]
