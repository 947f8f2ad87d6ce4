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


def test_the_readme_has_the_figures_of_the_study():
    """What its section on the paper says of Hit@1 on Diatoms, and what is printed there."""
    section = (REPO / "README.md").read_text().split("## The paper")[1].split("\n## ")[0]
    study = FOUND["paper"]["diatoms"]
    hits = dict(zip(study["candidates"], study["figures"]["hit@1"], strict=True))
    ours = {key: f"{100 * one['mean']:.1f}" for key, one in hits.items()}
    (row,) = (one for one in paper.ROWS if one.candidate.key == "hcl-paper")
    printed = f"{row.printed['diatoms'][0]:.1f}"
    words = " ".join(section.split())
    assert f"{ours['hcl-paper']} % Hit@1 on Diatoms against {printed} printed" in words
    assert f"reaches {ours['hcl-paper:normalize=losses']}," in words
