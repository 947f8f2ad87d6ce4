"""One column per level, and a level that is empty above a filled one: left out, and counted."""

import numpy as np
import pandas as pd
import pytest

from hierlearn import HierarchicalClassifier, Hierarchy, Labels
from hierlearn.datasets import read_table
from hierlearn.errors import DataWarning
from hierlearn.hierarchy.names import has_gap, join_levels

LEVELS = [
    ("a", "b", "c"),
    ("a", "", "c"),
    ("", "", "d"),
    ("a", "b", ""),
    ("", "", ""),
    ("a", "", "c"),
]
PATHS = ["a/b/c", "a/c", "d", "a/b", "", "a/c"]
GAPS = (
    "3 rows with an empty level above a filled one (the first is {}); that level is left out, so "
)
GAPS += "the path there is 'a/c'; fill the cell if the level is known"


def naive(cells):
    """The path of a row, and whether it has a gap, cell by cell."""
    names, gap, empty = [], False, False
    for cell in cells:
        if cell == "":
            empty = True
        else:
            gap = gap or empty
            names.append(cell)
    return "/".join(names), gap


def test_the_expected_paths_are_those_of_the_naive_loop():
    assert [naive(cells)[0] for cells in LEVELS] == PATHS
    assert [naive(cells)[1] for cells in LEVELS] == [has_gap(cells) for cells in LEVELS]
    draw = np.random.default_rng(0)
    for _ in range(200):
        cells = ["abcd"[n] if n < 4 else "" for n in draw.integers(0, 8, draw.integers(0, 6))]
        assert naive(cells)[1] == has_gap(cells)


def warned(work):
    with pytest.warns(DataWarning) as said:
        found = work()
    assert len(said) == 1, [str(one.message) for one in said]
    return found, str(said[0].message)


def test_rows_of_a_table(tmp_path):
    lines = ["x,l1,l2,l3", *(f"{n},{','.join(cells)}" for n, cells in enumerate(LEVELS))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    data, said = warned(lambda: read_table(tmp_path / "rows.csv", levels=["l1", "l2", "l3"]))
    assert data.labels == [[path] if path else [] for path in PATHS]
    assert said == f"{tmp_path / 'rows.csv'}: {GAPS.format('line 3')}"


def test_a_taxonomy_in_a_file(tmp_path):
    lines = ["l1,l2,l3", *(",".join(cells) for cells in LEVELS if any(cells))]
    (tmp_path / "h.csv").write_text("\n".join(lines) + "\n")
    h, said = warned(lambda: Hierarchy.read(tmp_path / "h.csv"))
    assert set(h.names) == {"a", "a/b", "a/b/c", "a/c", "d"}
    assert said == f"{tmp_path / 'h.csv'}: {GAPS.format('line 3')}"


def test_frames_and_arrays():
    frame = pd.DataFrame([[cell or None for cell in cells] for cells in LEVELS])
    h, said = warned(lambda: Hierarchy.from_frame(frame))
    assert set(h.names) == {"a", "a/b", "a/b/c", "a/c", "d"}
    assert said == f"the frame: {GAPS.format('row 1')}"
    labels, said = warned(lambda: Labels(frame, h))
    assert said == f"labels: {GAPS.format('row 1')}"
    expected = Labels([[path] if path else [] for path in PATHS], h)
    assert labels.targets().equal(expected.targets())
    joined, _ = warned(lambda: join_levels(LEVELS))
    assert [one or "" for one in joined] == PATHS


def test_the_estimator():
    cells = [cells for cells in LEVELS if any(cells)] * 4
    y = np.array(cells, dtype=object)
    X = np.arange(len(cells), dtype=float)[:, None]
    clf, said = warned(lambda: HierarchicalClassifier(recipe="hcl", epochs=1).fit(X, y))
    assert set(clf.hierarchy_.names) == {"a", "a/b", "a/b/c", "a/c", "d"}
    assert said.startswith("y: 12 rows with an empty level above a filled one (the first is row 1)")


def test_no_gap_no_warning(recwarn):
    frame = pd.DataFrame([["a", "b"], ["a", None], [None, None]])
    Hierarchy.from_frame(frame)
    assert not recwarn.list
