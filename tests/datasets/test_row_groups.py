"""The inputs of a Parquet file, left in the file: views that read what they are asked for."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hierlearn import Hierarchy
from hierlearn.datasets import open_table, read_table, stream_table
from hierlearn.datasets.tables.stream import RowGroups
from hierlearn.errors import DataError, HierlearnError


@pytest.fixture
def path(tmp_path):
    rows = 17
    columns = {
        "y": [["a/b", "c"][row % 2] for row in range(rows)],
        "z": [None if row == 4 else row / 7 for row in range(rows)],
        "x": list(range(rows)),
        "t": [f"text {row}" for row in range(rows)],
        "part": [["train", "test", "train"][row % 3] for row in range(rows)],
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=5)
    return tmp_path / "rows.parquet"


def test_a_streamed_table_is_the_table(path):
    for columns in ({"features": ["x", "z"]}, {"text": "t"}):
        held = read_table(path, label="y", split="part", **columns)
        streamed = stream_table(path, label="y", split="part", **columns)
        assert isinstance(streamed.inputs, RowGroups)
        assert streamed.labels == held.labels
        assert streamed.hierarchy == held.hierarchy
        assert streamed.feature_names == held.feature_names
        assert (streamed.kind, len(streamed)) == (held.kind, len(held))
        assert {k: v.tolist() for k, v in streamed.splits.items()} == {
            k: v.tolist() for k, v in held.splits.items()
        }
        test, wanted = streamed.split("test").inputs, held.split("test").inputs
        if held.kind == "texts":
            assert list(test) == wanted
        else:
            np.testing.assert_array_equal(np.asarray(test), wanted)


def test_every_other_column_is_a_feature(tmp_path):
    pq.write_table(pa.table({"a": [1], "y": ["c"], "b": [2]}), tmp_path / "rows.parquet")
    assert stream_table(tmp_path / "rows.parquet", label="y").feature_names == ("a", "b")


@pytest.mark.parametrize("picked", [[3], [0, 6, 16], [16, 2, 2, 9], [], slice(4, 11), slice(None)])
def test_views_read_the_rows_they_name_in_their_order(path, picked):
    numbers = RowGroups(open_table(path), ["x", "z"], "numbers")
    texts = RowGroups(open_table(path), ["t"], "texts")
    wanted = np.stack([np.arange(17), np.arange(17) / 7], axis=1).astype(np.float32)
    wanted[4, 1] = np.nan
    np.testing.assert_array_equal(np.asarray(numbers[picked]), wanted[picked])
    assert np.asarray(numbers[picked]).dtype == np.float32
    kept = np.arange(17)[picked].tolist()
    assert list(texts[picked]) == [f"text {row}" for row in kept]
    assert numbers[picked].shape == (len(kept), 2)
    again = numbers[picked][: len(kept) // 2]
    np.testing.assert_array_equal(np.asarray(again), wanted[picked][: len(kept) // 2])


def test_parts_are_row_groups_and_the_last_is_remembered(path, monkeypatch):
    inputs = RowGroups(open_table(path), ["x"], "numbers")
    parts = [part[:, 0].tolist() for part in inputs[[0, 3, 4, 11, 12, 16]].parts()]
    assert parts == [[0, 3, 4], [11, 12], [16]]
    reads = []
    whole = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile,
        "read_row_group",
        lambda self, group, **options: reads.append(group) or whole(self, group, **options),
    )
    for begin in range(10):
        np.asarray(inputs[begin : begin + 1])
    assert reads == [0, 1]


def test_equal_label_sets_are_one_list(path):
    labels = stream_table(path, label="y", features=["x"]).labels
    assert labels[0] == ["a/b"]
    assert labels[0] is labels[2]


def test_levels_lists_and_a_hierarchy_of_ones_own(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(
        pa.table({"x": [1, 2], "k": ["a", "c"], "f": ["b", None], "many": [["a/b", "c"], []]}), path
    )
    assert stream_table(path, levels=["k", "f"], features=["x"]).labels == [["a/b"], ["c"]]
    assert stream_table(path, label="many", features=["x"]).labels == [["a/b", "c"], []]
    hierarchy = Hierarchy.from_paths(["a/b", "c/d", "e"])
    assert stream_table(path, label="k", features=["x"], hierarchy=hierarchy).hierarchy is hierarchy
    file = tmp_path / "tree.json"
    file.write_text(hierarchy.to_json())
    assert stream_table(path, label="k", features=["x"], hierarchy=file).hierarchy == hierarchy


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": "no"}, r"rows\.parquet: unknown column 'no'; known: part, t, x, y, z"),
        ({"label": "y", "features": ["xx"]}, "unknown column 'xx'"),
        ({"label": "y", "split": "no"}, "unknown column 'no'"),
        ({}, "name either the label column"),
        ({"label": "y", "features": ["x"], "text": "t"}, "only numbers, or one column of texts"),
        ({"label": "y"}, r"rows\.parquet is a mixed table of 2 numbers: .*; only numbers, or one"),
        ({"label": "y", "features": ["x"], "column_kinds": {"x": "category"}}, "can be streamed: "),
        ({"label": "y", "features": ["t"]}, r"line 1, column 't': 'text 0' is not a finite number"),
        (
            {"label": "x", "features": ["z"], "hierarchy": Hierarchy.from_paths(["0"])},
            r"line 2: unknown label '1'",
        ),
        ({"label": "y", "features": ["x"], "window": 0}, "the window must be at least 1 row"),
    ],
)
def test_errors_name_the_file_and_the_column(path, columns, message):
    with pytest.raises(HierlearnError, match=message):
        np.asarray(stream_table(path, **columns).inputs)


def test_other_files_and_empty_ones_are_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("x,y\n1,a\n")
    with pytest.raises(DataError, match=r"rows\.csv: only Parquet files can be streamed"):
        stream_table(tmp_path / "rows.csv", label="y")
    pq.write_table(pa.table({"y": ["a"]}), tmp_path / "one.parquet")
    with pytest.raises(DataError, match=r"one\.parquet has no feature column; it has 'y'"):
        stream_table(tmp_path / "one.parquet", label="y")
    empty = pa.table({"x": pa.array([], pa.int32()), "y": pa.array([], pa.string())})
    pq.write_table(empty, tmp_path / "none.parquet")
    with pytest.raises(DataError, match=r"none\.parquet has a header but no rows"):
        stream_table(tmp_path / "none.parquet", label="y")
