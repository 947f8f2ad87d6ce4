"""Vectors of rows: from a file beside a table, or from a column of lists."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hierlearn.datasets import read_table, stream_table
from hierlearn.datasets.tables.stream import TableStream
from hierlearn.errors import DataError

X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
LABELS = ["a/b", "a/c", "d", "a/b", "d"]


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "x.npy", X)
    lines = [f"{n},{label}" for n, label in enumerate(LABELS)]
    (tmp_path / "rows.csv").write_text("\n".join(["id,class", *lines]) + "\n")
    return tmp_path


def parquet(folder, kind=None, values=X):
    column = pa.array([list(map(float, row)) for row in values], type=kind)
    pq.write_table(pa.table({"class": LABELS, "vector": column}), folder / "rows.parquet")
    return folder / "rows.parquet"


def test_a_file_beside_a_table(folder):
    found = read_table(folder / "rows.csv", label="class", embeddings=folder / "x.npy")
    np.testing.assert_array_equal(found.inputs, X)
    assert found.labels == [[label] for label in LABELS]
    assert found.kind == "numbers"


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.float64()),
        pa.list_(pa.float32(), 3),
        pa.large_list(pa.float32()),
    ],
)
def test_a_column_of_lists(folder, kind):
    path = parquet(folder, kind)
    found = read_table(path, label="class", embeddings="vector")
    np.testing.assert_allclose(found.inputs, X)
    parts = list(TableStream(path, embeddings="vector", cells=2))
    np.testing.assert_allclose(np.concatenate([part.inputs for part in parts]), X)


def test_lists_in_a_csv_file(folder):
    rows = ["class;vector", *(f"d;{json.dumps(row.tolist())}" for row in X)]
    (folder / "lists.csv").write_text("\n".join(rows) + "\n")
    found = read_table(folder / "lists.csv", label="class", embeddings="vector", delimiter=";")
    np.testing.assert_allclose(found.inputs, X)


def test_rows_that_are_left_out_take_their_vectors_along(folder):
    from hierlearn import Hierarchy

    tree = Hierarchy.from_paths(["a/b", "a/c"])
    with pytest.warns(UserWarning, match="left out|skipped"):
        found = read_table(
            folder / "rows.csv",
            label="class",
            embeddings=folder / "x.npy",
            hierarchy=tree,
            unknown="skip",
        )
    np.testing.assert_array_equal(found.inputs, X[[0, 1, 3]])


@pytest.mark.parametrize("cells", [1, 2, 1000])
def test_a_stream_of_rows_and_their_vectors(folder, cells):
    stream = TableStream(folder / "rows.csv", embeddings=folder / "x.npy", cells=cells)
    for _ in range(2):  # again and again
        assert np.array_equal(np.concatenate([part.inputs for part in stream]), X)
    kept = TableStream(folder / "rows.csv", embeddings=folder / "x.npy", keep=["id"], cells=2)
    assert [len(part.inputs) for part in kept] == [len(part.kept["id"]) for part in kept]


@pytest.mark.parametrize("count", [4, 6])
def test_another_number_of_rows(folder, count):
    np.save(folder / "x.npy", np.ones((count, 3), dtype=np.float32))
    with pytest.raises(DataError, match=rf"{count} vectors, but .* 5 rows"):
        read_table(folder / "rows.csv", label="class", embeddings=folder / "x.npy")
    with pytest.raises(DataError, match=rf"{count} vectors, but .*(more|5) rows"):
        list(TableStream(folder / "rows.csv", embeddings=folder / "x.npy", cells=2))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            [[1.0], [2.0, 3.0], [1.0], [1.0], [1.0]],
            "vector.*: a vector of 2 numbers, after ones of 1",
        ),
        ([[1.0], None, [1.0], [1.0], [1.0]], "'None' is no list of numbers"),
        ([[1.0], [], [1.0], [1.0], [1.0]], r"'\[\]' is no list of numbers"),
        ([[1.0], [None], [1.0], [1.0], [1.0]], "not a finite float32|else than numbers"),
        ([[1.0], [float("inf")], [1.0], [1.0], [1.0]], "not a finite float32"),
    ],
)
def test_cells_that_are_no_vectors(folder, cells, message):
    table = pa.table({"class": LABELS, "vector": pa.array(cells, type=pa.list_(pa.float64()))})
    pq.write_table(table, folder / "rows.parquet")
    with pytest.raises(DataError, match=message):
        read_table(folder / "rows.parquet", label="class", embeddings="vector")


def test_refusals(folder):
    path, vectors = folder / "rows.csv", folder / "x.npy"
    with pytest.raises(DataError, match="embeddings are the only inputs; leave features= out"):
        read_table(path, label="class", embeddings=vectors, features=["id"])
    with pytest.raises(DataError, match="unknown column 'vector'"):
        read_table(path, label="class", embeddings="vector")
    with pytest.raises(DataError, match="'class' is named twice, as label and as embeddings"):
        read_table(path, label="class", embeddings="class")
    with pytest.raises(DataError, match="embeddings cannot be streamed"):
        stream_table(parquet(folder), label="class", embeddings="vector")
    with pytest.raises(DataError, match="'0' is no list of numbers"):
        read_table(path, label="class", embeddings="id")
