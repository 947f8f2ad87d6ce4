"""``hierlearn rank`` over studies on the disk: what it prints, writes and refuses."""

import json

import pytest

from lab.rank_studies import studies

LOSSES = ("bce", "hxe", "hcl")
TABLE = [[0.1, 0.5, 0.9], [0.2, 0.6, 0.7], [0.3, 0.2, 0.8]]
FILES = "critical-difference.png, critical-difference.svg, ranks.json, ranks.md"


def test_a_table_the_tests_and_files(call, tmp_path):
    studies(tmp_path, TABLE, LOSSES)
    said = call("rank s0 s1 s2 --out r")
    assert f"wrote {FILES} to r" in said
    rows = [line.split() for line in said.splitlines() if line.startswith("│")]
    assert [row[1] for row in rows] == ["hcl", "hxe", "bce"]
    assert [row[3] for row in rows] == ["1.00", "2.33", "2.67"]
    found = json.loads((tmp_path / "r" / "ranks.json").read_text())
    assert found["verdict"] in said
    assert "With 3 datasets these tests have little power" in said
    assert all((tmp_path / "r" / name).stat().st_size > 100 for name in FILES.split(", "))


def test_what_is_there_is_replaced_only_by_force(call, tmp_path):
    studies(tmp_path, TABLE, LOSSES)
    call("rank s0 s1")
    refused = call("rank s0 s2", code=2)
    assert "ranks/ranks.json exists; pass --force to replace it" in refused
    call("rank s0 s2 --force")
    assert json.loads((tmp_path / "ranks" / "ranks.json").read_text())["datasets"] == [
        "data0",
        "data2",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("s0", "ranks need at least two studies, not 1"),
        ("s0 s0", "s0 and s0 are studies of the same dataset (data0, 2 rows)"),
        ("s0 s1 --metric mrr", "s0 has no mrr; it has au-prc, hier-dist, mean-level"),
        ("s0 s1 --metric mean-level", "metric 'mean-level' is not a single number"),
        ("s0 nowhere", "nowhere holds no study"),
    ],
)
def test_what_is_refused(call, tmp_path, words, message):
    studies(tmp_path, TABLE, LOSSES)
    assert message in call(f"rank {words} --out r", code=2)
    assert not (tmp_path / "r").exists()
