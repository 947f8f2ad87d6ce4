"""Rows of a request become the same inputs as rows of a file."""

import base64
import csv
import io

import numpy as np
import pytest

from hierlearn.datasets.tables.stream import TableStream
from hierlearn.errors import DataError
from hierlearn.pipeline import Pipeline
from hierlearn.service.rows import GivenRows, Inputs, decoded


@pytest.fixture(scope="module")
def table(models):
    return Inputs.of(Pipeline.load(models / "table"))


def test_a_file_and_a_request_give_the_same_table(table, models):
    path = models / "rows.csv"
    (chunk,) = TableStream(path, features=table.kinds)
    with path.open() as file:
        cells = list(csv.DictReader(file))
    numbers = [name for name, kind in table.kinds.items() if kind == "number"]
    rows = [
        {n: (float(c) if c else None) if n in numbers else c for n, c in row.items()}
        for row in cells
    ]
    found = table.chunk(table.columns(rows)).inputs
    for name in table.kinds:
        wanted, given = chunk.inputs.columns[name], found.columns[name]
        assert given.dtype == wanted.dtype
        np.testing.assert_array_equal(given, wanted)
    texts = [{name: row[name] or None for name in table.kinds} for row in cells]
    again = table.chunk(table.columns(texts)).inputs  # cells as texts, too
    for name in table.kinds:
        np.testing.assert_array_equal(again.columns[name], found.columns[name])


def test_a_cell_does_not_depend_on_the_cells_beside_it():
    """1, 1.0 and true are one key of a dictionary, but three values."""
    rows = GivenRows({"kind": [1, True, 1.0, "1", None, 0, False]})
    assert rows.column("kind", "category").tolist() == ["1", "true", "1", "1", "", "0", "false"]


def test_numbers_are_parsed_as_in_a_file():
    cells = [1, 2.5, "3e2", None, "", 16777217]
    found = GivenRows({"a": cells}).number_column("a")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(
        found, np.array([1, 2.5, 300, np.nan, np.nan, 16777216], dtype=np.float32)
    )
    for wrong in ("1_000", "x", True, [], 10**400):
        with pytest.raises(DataError, match=r"^row 8 \(counted from 0\), column 'a': .*finite"):
            GivenRows({"a": [0, wrong]}, first=7).number_column("a")


def test_what_models_read(models):
    numbers = Inputs.of(Pipeline.load(models / "numbers"))
    assert (numbers.kind, numbers.kinds) == ("numbers", {"a": "number", "b": "number"})
    texts = Inputs.of(Pipeline.load(models / "texts"))
    assert (texts.kind, texts.kinds) == ("texts", {"note": "text"})
    assert texts.columns(["a", "b"]) == texts.columns([{"note": "a"}, {"note": "b"}])
    with pytest.raises(DataError, match="7 is not text"):
        texts.chunk(texts.columns([{"note": 7}]))
    assert "objects with 1 column 'note' or texts" in texts.described


def test_vectors_without_a_name(models):
    own = Inputs(Pipeline.load(models / "numbers"), "vectors", {"vector": "vector"}, False, 2)
    found = own.chunk(own.columns([[1, 2], [3, 4.5]])).inputs
    np.testing.assert_array_equal(found, np.array([[1, 2], [3, 4.5]], dtype=np.float32))
    for rows, reason in (
        ([[1, 2], [3]], r"row 1 \(counted from 0\): list of 1 entry is no list of 2 numbers"),
        ([[1, None]], "entry 1 of the list, None, is not a finite number"),
        ([[1, "2x"]], "entry 1 of the list, '2x', is not a finite"),
        ([[1, 1e39]], "entry 1 of the list, 1e"),
        ([{"a": 1}], "does not know its columns by name"),
    ):
        with pytest.raises(DataError, match=reason):
            own.chunk(own.columns(rows))


def test_images_come_in_base64():
    image = pytest.importorskip("PIL.Image")
    content = io.BytesIO()
    image.new("RGB", (2, 2)).save(content, "png")
    rows = GivenRows({"picture": [base64.b64encode(content.getvalue()).decode(), "no base64"]})
    assert decoded(rows, 0, "picture").read() == content.getvalue()
    with pytest.raises(DataError, match="'no base64' is no base64 of an image file"):
        decoded(rows, 1, "picture")
