"""Parts of a table: together they are the table, line numbers and chunks included."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hierlearn.datasets import open_table
from hierlearn.datasets.tables import delimited
from hierlearn.datasets.tables.stream import EVEN, TableStream, even_size
from hierlearn.datasets.tables.table import TablePart
from hierlearn.errors import DataError

PLAIN = "id,x,words\n" + "".join(f"{n},{n / 7:.4f},word {n}\n" for n in range(50))
FILES = {
    "plain": PLAIN,
    "no line feed at the end": PLAIN[:-1],
    "carriage returns": PLAIN.replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + PLAIN,
    "blank lines": PLAIN.replace("\n1", "\n\n\n1"),
    "blank lines at the end": PLAIN + "\n\n\n",
    "line feeds in cells": "id,x,words\n"
    + "".join(f'{n},{n},"a ""b""\n\n{n}"\n' if n % 3 else f"{n},{n},c\n" for n in range(50)),
    "quotes that only the csv module reads": PLAIN + '50,1.0,a "word" here\n51,2.0,x\n',
    "one column": "words\n" + "".join(f"word {n}\n" for n in range(50)),
}


def cells(file, size):
    """Every row with its line, and the sizes of the chunks."""
    rows, sizes = [], []
    for chunk in file.chunks(file.columns, size):
        columns = [list(chunk.cells(name)) for name in file.columns]
        rows += zip(chunk.lines, *columns, strict=True)
        sizes.append(len(chunk))
    return rows, sizes


@pytest.mark.parametrize("block", [37, 1 << 24])
@pytest.mark.parametrize("rows", [1, 7, 50, 1000])
@pytest.mark.parametrize("name", FILES)
def test_parts_of_csv_are_the_file(name, rows, block, tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "PART_BLOCK", block)
    path = tmp_path / "rows.csv"
    path.write_bytes(FILES[name].encode())
    file = open_table(path)
    whole, _ = cells(file, None)
    parts = file.parts(rows)
    found = []
    for part in parts:
        own, sizes = cells(file.part(part), 3)
        assert part.before == len(found)
        assert part.rows in (None, len(own))
        assert all(size == 3 for size in sizes[:-1])
        found += own
    assert found == whole
    assert all(part.rows == rows for part in parts[:-1])
    if name not in ("one column", "quotes that only the csv module reads"):
        assert len(parts) == -(-len(whole) // rows)


@pytest.mark.parametrize("group", [1, 6, 50])
@pytest.mark.parametrize("rows", [1, 7, 50, 1000])
def test_parts_of_parquet_are_the_file(rows, group, tmp_path):
    table = pa.table({"id": range(50), "words": [f"word {n}" for n in range(50)]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=group)
    file = open_table(tmp_path / "rows.parquet")
    found = []
    for part in file.parts(rows):
        own, sizes = cells(file.part(part), 3)
        assert part.rows == len(own)
        assert all(size == 3 for size in sizes[:-1])
        found += own
    assert found == cells(file, None)[0]


def test_a_table_without_rows_has_no_parts(tmp_path):
    (tmp_path / "rows.csv").write_text("id,x\n")
    assert open_table(tmp_path / "rows.csv").parts(10) == []
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "rows.parquet")
    assert open_table(tmp_path / "rows.parquet").parts(10) == []


def test_the_parts_of_a_stream_have_its_chunks_in_another_process(tmp_path):
    draw = np.random.default_rng(0).normal(size=(100, 2))
    lines = [f"r{n},{a:.5f},{b:.5f}" for n, (a, b) in enumerate(draw)]
    (tmp_path / "rows.csv").write_text("\n".join(["id,a,b", *lines]) + "\n")
    vectors = np.arange(300, dtype=np.float32).reshape(100, 3)
    np.save(tmp_path / "v.npy", vectors)
    for given in ({"features": ["b", "a"]}, {"embeddings": tmp_path / "v.npy"}):
        stream = TableStream(
            tmp_path / "rows.csv", id_column="id", keep=["a"], cells=3 * 16, **given
        )
        whole = list(stream)
        parts = stream.parts(32)
        assert [part.rows for part in parts] == [32, 32, 32, 4]
        found = [chunk for part in parts for chunk in pickle.loads(pickle.dumps(stream)).part(part)]
        assert [len(one.lines) for one in found] == [len(one.lines) for one in whole]
        for one, other in zip(found, whole, strict=True):
            np.testing.assert_array_equal(one.inputs, other.inputs)
            assert [*one.lines] == [*other.lines]
            assert [*one.ids] == [*other.ids]
            assert one.kept["a"].to_pylist() == other.kept["a"].to_pylist()


def test_a_wrong_cell_has_the_line_that_it_has_in_the_file(tmp_path):
    (tmp_path / "rows.csv").write_text(PLAIN.replace("33,4.7143", "33,four"))
    stream = TableStream(tmp_path / "rows.csv", features=["x"])
    with pytest.raises(DataError) as whole:
        list(stream)
    broken = stream.part(TablePart(30, 10, stream.file.parts(10)[3].span))
    with pytest.raises(DataError) as part:
        list(broken)
    assert str(part.value) == str(whole.value)
    assert "line 35" in str(part.value)


@pytest.mark.parametrize(
    ("rows", "expected"), [(0, 1), (1, 1), (3, 2), (4095, 2048), (EVEN, EVEN), (26214, 24576)]
)
def test_chunks_come_out_even(rows, expected):
    assert even_size(rows) == expected
