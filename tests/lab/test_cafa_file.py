"""Gene, term and score: order, limits, and what is refused."""

import pytest
import torch

from hierlearn import Hierarchy
from hierlearn.errors import DataError
from hierlearn.lab.cafa import cafa_writer

H = Hierarchy.from_edges([("a", "b"), ("a", "c"), ("b", "d")], named_by="id")


def write(path, ids, p, **options):
    with cafa_writer(path, H, **options) as append:
        count = append(ids, torch.tensor(p))
    return count, path.read_text().splitlines()


def test_lines(tmp_path):
    p = [[0.9, 0.9, 0.004, 0.25], [0.5, 0.0, 0.5, 0.0004]]
    count, lines = write(tmp_path / "s.tsv", ["g1", "g2"], p, min_score=0.0001)
    assert lines == [
        "g1\ta\t0.900",
        "g1\tb\t0.900",
        "g1\td\t0.250",
        "g1\tc\t0.004",
        "g2\ta\t0.500",
        "g2\tc\t0.500",  # 0.0004 would be written as 0
    ]
    assert count == 6


def test_limits(tmp_path):
    p = [[0.9, 0.9, 0.2, 0.25]]
    assert write(tmp_path / "s.tsv", ["g"], p, max_terms=1)[1] == ["g\ta\t0.900"]
    found = write(tmp_path / "s.tsv", ["g"], p, min_score=0.25)[1]
    assert [line.split("\t")[1] for line in found] == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        (["g"], {"min_score": 2}, "min_score must lie between 0 and 1"),
        (["g"], {"max_terms": 0}, "max_terms must be at least 1"),
        (["g", "h"], {}, r"probabilities \(1, 4\) must be \(2, 4\)"),
        (["g\tx"], {}, "holds a tab or a line end"),
    ],
)
def test_what_is_refused_leaves_no_file(tmp_path, ids, options, message):
    with pytest.raises(DataError, match=message):
        write(tmp_path / "s.tsv", ids, [[0.5] * 4], **options)
    assert list(tmp_path.iterdir()) == []
