"""GAF files: genes and their terms, evidence, NOT, aspects, and what is refused."""

import gzip
import re

import pytest

from hierlearn.datasets import read_gaf
from hierlearn.datasets.gaf import EXPERIMENTAL
from hierlearn.errors import DataError


def line(gene, term, evidence="IDA", qualifier="involved_in", aspect="P", symbol="sym"):
    cells = ["DB", gene, symbol, qualifier, term, "PMID:1", evidence, "", aspect, "name", "syn"]
    return "\t".join([*cells, "protein", "taxon:9606", "20260101", "DB", "", ""])


LINES = [
    "!gaf-version: 2.2",
    "! a comment",
    line("P1", "GO:1"),
    line("P1", "GO:2", "IEA"),
    line("P1", "GO:1", "IMP"),
    line("P2", "GO:3", qualifier="NOT|involved_in", symbol="two"),
    line("P2", "GO:4", aspect="F", symbol="two"),
    line("P3", "GO:5", "ND"),
    "",
]


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "genes.gaf"
    found.write_text("\n".join(LINES))
    return found


def test_terms_by_gene(path):
    found = read_gaf(path)
    assert dict(found) == {"P1": ("GO:1", "GO:2"), "P2": ("GO:4",)}
    assert found.left_out == {"NOT": 1, "evidence": 1, "aspect": 0}
    assert found.summary() == (
        f"{path}: 4 annotations of 2 genes; left out: 1 say NOT, 1 have other evidence"
    )


def test_filters(path):
    assert dict(read_gaf(path, evidence=["experimental"])) == {"P1": ("GO:1",), "P2": ("GO:4",)}
    assert dict(read_gaf(path, evidence=["iea"])) == {"P1": ("GO:2",)}
    assert dict(read_gaf(path, evidence=["ND"])) == {"P3": ("GO:5",)}
    assert "IEA" not in EXPERIMENTAL
    for aspects in (["F"], ["molecular_function"]):
        found = read_gaf(path, aspects=aspects)
        assert dict(found) == {"P2": ("GO:4",)}
        assert found.left_out["aspect"] == 3
    assert set(read_gaf(path, key="symbol")) == {"sym", "two"}


def test_compressed_and_older_versions(tmp_path, path):
    packed = tmp_path / "genes.gaf.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert dict(read_gaf(packed)) == dict(read_gaf(path))
    old = "\n".join(["!gaf-version: 1.0", *("\t".join(x.split("\t")[:15]) for x in LINES[2:])])
    path.write_text(old)
    assert set(read_gaf(path)) == {"P1", "P2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!gaf-version: 3.0\n", "line 1: GAF version 3.0 is not known; 1.0 to 2.2 are"),
        ("!gpa-version: 1.1\n", "line 1: this is a GPA file, not GAF"),
        ("P1\tGO:1\n", "line 1: 2 columns, but a GAF file has 17, separated by tabs"),
        (line("", "GO:1"), "line 1: column 2, the gene, is empty"),
        (line("P1", ""), "line 1: column 5, the term, is empty"),
        (line("P1", "GO:1", "ND"), "has no annotation that is kept (1 by evidence)"),
        ("!gaf-version: 2.2\n", "has no annotation that is kept (it has none at all)"),
    ],
)
def test_wrong_files(tmp_path, text, message):
    path = tmp_path / "x.gaf"
    path.write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        read_gaf(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evidence": ["IDX"]}, "unknown evidence code 'IDX'"),
        ({"evidence": "IDA"}, "evidence is a list of codes"),
        ({"aspects": ["Q"]}, "unknown aspect 'Q'"),
        ({"aspects": "P"}, "aspects is a list"),
        ({"key": "name"}, "unknown key 'name'"),
    ],
)
def test_wrong_options(path, options, message):
    with pytest.raises(DataError, match=message):
        read_gaf(path, **options)
