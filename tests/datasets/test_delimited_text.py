"""Rows as the text of a CSV file, against Python's csv module."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierlearn.datasets.tables import write
from hierlearn.datasets.tables.write import CodedColumn, DelimitedText

CELLS = st.text(alphabet='ab ,;\t"\r\n\u00e9=', max_size=6)
VALUES = ("plain", "with, comma", 'say "x"', "", "two\nlines", "a\rb", "\t")
CODES = np.array([0, 1, 2, 3, 4, 5, 6, 3, 0])


def reference(names, columns, delimiter=","):
    """What the csv module writes, cell by cell."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    for row in zip(*columns, strict=True):
        cells = []
        for cell in row:
            if isinstance(cell, (bool, np.bool_)):
                cells.append("true" if cell else "false")
            else:
                cells.append(f"{cell:.6g}" if isinstance(cell, float) else cell)
        writer.writerow(cells)
    return text.getvalue()


def made(names, columns, delimiter=","):
    text = DelimitedText(names, delimiter)
    return text.header() + text.rows(dict(zip(names, columns, strict=True)))


@given(st.lists(st.tuples(CELLS, CELLS), max_size=8), st.sampled_from(",\t;"))
def test_texts(rows, delimiter):
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], []]
    for count in (1, 2):
        names = ["x, y", 'a "name"'][:count]
        expected = reference(names, columns[:count], delimiter)
        assert made(names, columns[:count], delimiter) == expected


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_every_kind_of_column(delimiter):
    p = np.array([0.123456789, 1.0, 1e-9, 0.5, 0.1, 0.99999999, 0.0, 1 / 3, 2 / 3])
    columns = {
        "path": CodedColumn(VALUES, CODES),
        "class": CodedColumn([value[::-1] for value in VALUES], CODES),
        "p": p,
        "level": CodedColumn(range(7), CODES),
        "stopped": CodedColumn([True, False, True, True, False, False, True], CODES),
        "other": CodedColumn(("u,", "v"), CODES % 2),
        "number": np.arange(9),
        "gap": [None, 0.25, *[None] * 7],
        "flag": [True, False, *[True] * 7],
    }
    plain = [
        [None if cell is None else cell for cell in column] for column in list(columns.values())
    ]
    expected = reference(columns, [list(column) for column in plain], delimiter)
    assert made(list(columns), columns.values(), delimiter) == expected


def test_the_second_rows_are_made_of_their_own_values(monkeypatch):
    monkeypatch.setattr(write, "MOST_TEXTS", 2)
    text = DelimitedText(["a", "b"], ",")
    for number in range(5):
        values = (f"x{number}", f"y{number}")
        codes = np.array([1, 0])
        rows = {"a": CodedColumn(values, codes), "b": CodedColumn(("u", "v"), codes)}
        assert text.rows(rows) == f"y{number},v\nx{number},u\n"
        assert len(text._texts) <= 2


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="longer"):
        DelimitedText(["a", "b"], ",").rows({"a": ["x"], "b": ["x", "y"]})


def test_a_coded_column_is_a_sequence():
    column = CodedColumn(("a", "b"), np.array([1, 0, 1]))
    assert list(column) == ["b", "a", "b"]
    assert column == ["b", "a", "b"]
    assert column != ["b", "a"]
    assert column[1] == "a"
    assert column[1:] == ["a", "b"]
    assert column.take([2, 1]) == ["b", "a"]
    assert np.asarray(column).tolist() == ["b", "a", "b"]
    assert column.to_arrow().to_pylist() == ["b", "a", "b"]
    assert int(np.sum(CodedColumn((True, False), column.codes))) == 1
