"""The protocol of table files: every format of READERS keeps it, and one line adds a format."""

import bz2
import gzip
import json
import lzma
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from hierlearn.datasets import READERS, open_table, read_table, stream_table
from hierlearn.datasets.tables.read import Columns
from hierlearn.datasets.tables.stream import TableStream
from hierlearn.datasets.tables.table import TableChunk, TableFile
from hierlearn.errors import DataError

NAN = float("nan")
ROWS = {
    "x": [1.5, None, -3.0, 4.0, 5.0],
    "t": ["one", "two", None, "four", "five"],
    "y": ["a/b", "c", "", "a/b", "c"],
}


class Objects(TableFile):
    """A format of one's own: one JSON object per line; the first line has all columns."""

    format_name = "objects"

    def __init__(self, path):
        self.path = path
        self.columns = tuple(json.loads(path.read_text().splitlines()[0]))

    def chunks(self, columns, rows_per_chunk=None):
        rows = [json.loads(line) for line in self.path.read_text().splitlines()]
        step = rows_per_chunk or max(1, len(rows))
        for begin in range(0, len(rows), step):
            part = rows[begin : begin + step]
            cells = {name: [row[name] for row in part] for name in columns}
            yield TableChunk(self.path, cells, range(begin + 1, begin + len(part) + 1))


@pytest.fixture(autouse=True)
def one_more_format(monkeypatch):
    monkeypatch.setitem(READERS, ".objects", Objects)


def write(path):
    rows = list(zip(*ROWS.values(), strict=True))
    ending, *packed = path.suffixes
    if ending == ".parquet":
        pq.write_table(pa.table(ROWS), path, row_group_size=2)
    elif ending == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as stream:
            stream.write_table(pa.table(ROWS), max_chunksize=2)
    elif ending == ".feather":
        feather.write_feather(pa.table(ROWS), str(path), chunksize=2)
    elif ending == ".xlsx":
        book = openpyxl.Workbook()
        for row in (list(ROWS), *rows):
            book.active.append(row)
        book.save(path)
    elif ending in (".db", ".sqlite", ".sqlite3"):
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE rows (x, t, y)")
            database.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
    elif ending in (".jsonl", ".ndjson", ".objects"):
        objects = [dict(zip(ROWS, row, strict=True)) for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in objects))
    else:
        sep = "\t" if ending in (".tsv", ".txt") else ","
        lines = [
            sep.join("" if cell is None else f" {cell} " for cell in row)
            for row in ([*ROWS], *rows)
        ]
        path.write_text("\n".join(lines) + "\n")
    if packed:
        path.write_bytes(PACK[packed[0]](path.read_bytes()))
    return path


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
SCHEMA = pa.table(ROWS).schema
ENDINGS = [*READERS, ".objects", ".csv.gz", ".tsv.bz2", ".txt.xz", ".jsonl.gz", ".ndjson.xz"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("size", [1, 2, 5, 100, None])
def test_chunks_are_the_rows_in_order(tmp_path, ending, size):
    file = open_table(write(tmp_path / f"rows{ending}"))
    assert file.columns == ("x", "t", "y")
    assert file.num_rows in (None, 5)
    chunks = list(file.chunks(["t", "x"], size))
    assert all(0 < len(chunk) <= (size or 5) for chunk in chunks)
    found = np.concatenate([chunk.numbers(["x"]) for chunk in chunks])
    np.testing.assert_array_equal(found, np.float32([[1.5], [NAN], [-3], [4], [5]]))
    assert found.dtype == np.float32
    texts = [text for chunk in chunks for text in chunk.texts("t")]
    assert texts == ["one", "two", "", "four", "five"]
    lines = [line for chunk in chunks for line in chunk.lines]
    assert lines == list(range(lines[0], lines[0] + 5))
    assert len(file.read(["x"])) == 5


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_serves_reading_and_predicting(tmp_path, ending):
    path = write(tmp_path / f"rows{ending}")
    data = read_table(path, label="y", features=["x"])
    assert data.labels == [["a/b"], ["c"], [], ["a/b"], ["c"]]
    (chunk,) = TableStream(path, features=["x"])
    np.testing.assert_array_equal(chunk.inputs, data.inputs)
    with pytest.raises(DataError, match="unknown column 'z'; known: t, x, y"):
        read_table(path, label="z", features=["x"])
    with pytest.raises(
        DataError, match=r"line \d, column 't': 'one' is not a finite number; leave"
    ):
        read_table(path, label="y", features=["t"], column_kinds={"t": "number"})


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_format_streams_into_training_if_its_groups_can_be_read_alone(tmp_path, ending):
    path = write(tmp_path / f"rows{ending}")
    if ending != ".parquet":
        with pytest.raises(DataError, match="only Parquet files can be streamed into training; c"):
            stream_table(path, label="y", features=["x"])
        return
    file = open_table(path)
    assert file.group_offsets.tolist() == [0, 2, 4, 5]
    assert len(file.group_bytes) == 3
    assert file.read_group(1, ["x"]).numbers(["x"]).tolist() == [[-3], [4]]
    assert list(file.read_group(1, ["x"]).lines) == [3, 4]


def test_columns_with_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r"rows\.parquet: two columns have the name 'x'; rename"):
        open_table(tmp_path / "rows.parquet")


def test_a_header_that_is_empty_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("\nx,y\n1,a\n")
    with pytest.raises(DataError, match="begins with an empty line; write the column names into"):
        open_table(tmp_path / "rows.csv")


def test_the_separator_of_a_hierarchy_file_decides_what_may_join_labels(tmp_path):
    from hierlearn import Hierarchy

    hierarchy = Hierarchy.from_paths(["a > b", "c"], sep=" > ")
    (tmp_path / "h.json").write_text(hierarchy.to_json())
    (tmp_path / "rows.csv").write_text("x,y\n1,a > b/c\n")
    for given in (hierarchy, tmp_path / "h.json"):
        data = read_table(tmp_path / "rows.csv", label="y", label_sep="/", hierarchy=given)
        assert data.labels == [["a > b", "c"]]
        with pytest.raises(DataError, match="label_sep '>' joins labels and sep ' > '"):
            read_table(tmp_path / "rows.csv", label="y", label_sep=">", hierarchy=given)


def test_columns_know_their_roles(tmp_path):
    file = open_table(write(tmp_path / "rows.csv"))
    assert Columns(label="y", features=["x"], split="t").annotations == ("y", "t")
    assert Columns(levels=["t", "y"]).annotations == ("t", "y")
    assert Columns(levels=["t", "y"]).inputs_of(file) == ("x",)
    assert Columns(label="y").inputs_of(file) == ("x", "t")
    assert Columns(label="y", text="t").inputs_of(file) == ("t",)
    with pytest.raises(DataError, match="has no feature column; it has 'x', 't', 'y': add one"):
        Columns(levels=["x", "t", "y"]).inputs_of(file)
    with pytest.raises(TypeError, match="labels"):
        stream_table(Path("rows.parquet"), labels="y")
