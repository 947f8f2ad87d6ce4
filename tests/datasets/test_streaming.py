"""Tables of any size, some rows at a time: the same rows as in memory, in little memory."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hierlearn.datasets import read_table
from hierlearn.datasets.tables.stream import TableStream
from hierlearn.errors import DataError

NAN = float("nan")


def write(path, columns, **options):
    """Write columns of cells as CSV, TSV or Parquet, None where one is missing."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, **options)
        return path
    sep = "\t" if path.suffix == ".tsv" else ","
    rows = zip(*columns.values(), strict=True)
    lines = [sep.join("" if cell is None else str(cell) for cell in row) for row in rows]
    path.write_text("\n".join([sep.join(columns), *lines]) + "\n")
    return path


def table(rows=23):
    draw = np.random.default_rng(0)
    return {
        "a": draw.standard_normal(rows).round(4).tolist(),
        "y": ["k/m", "n"] * (rows // 2) + ["n"] * (rows % 2),
        "b": [None if row % 5 == 0 else row for row in range(rows)],
        "t": [None if row == 2 else f"words of {row}" for row in range(rows)],
    }


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("cells", [1, 10, 1000])
def test_chunks_hold_the_rows_of_the_table_in_order(tmp_path, ending, cells):
    path = write(tmp_path / f"rows{ending}", table(), row_group_size=9)
    stream = TableStream(path, features=["b", "a"], cells=cells)
    chunks = list(stream)
    assert all(len(chunk.inputs) <= max(1, cells // 2) for chunk in chunks)
    held = read_table(path, label="y", features=["b", "a"])
    np.testing.assert_array_equal(np.concatenate([one.inputs for one in chunks]), held.inputs)
    assert chunks[0].inputs.dtype == np.float32
    lines = [line for chunk in chunks for line in chunk.lines]
    first = 1 if ending == ".parquet" else 2
    assert lines == list(range(first, first + 23))
    assert stream.ignored == ("y", "t")
    assert stream.rows == (23 if ending == ".parquet" else None)
    assert len(list(stream)) == len(chunks), "a stream can be read again"


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
def test_texts_are_streamed_too(tmp_path, ending):
    path = write(tmp_path / f"rows{ending}", table())
    texts = [text for chunk in TableStream(path, text="t", cells=4) for text in chunk.inputs]
    assert texts == read_table(path, label="y", text="t").inputs
    assert texts[2] == ""


def test_a_parquet_file_of_integers_decimals_and_texts(tmp_path):
    columns = {
        "whole": pa.array([1, None, 3], pa.int32()),
        "half": pa.array(np.array([1, 2, 3], np.float16)),
        "text": ["1.5", "", None],
        "decimal": pa.array([1, 2, 3]).cast(pa.decimal128(30, 2)),
    }
    path = write(tmp_path / "rows.parquet", columns)
    (chunk,) = TableStream(path, features=list(columns))
    wanted = [[1, 1, 1.5, 1], [NAN, 2, NAN, 2], [3, 3, NAN, 3]]
    np.testing.assert_array_equal(chunk.inputs, np.array(wanted, np.float32))


def test_a_row_of_empty_cells_is_a_row_and_a_blank_line_is_none(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n,\r\n")
    (chunk,) = TableStream(path, features=["a", "b"])
    assert chunk.lines == [2, 4]
    np.testing.assert_array_equal(chunk.inputs, [[1, 2], [NAN, NAN]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "rows.csv is empty"),
        ("a,b\n", "rows.csv has a header but no rows"),
        ("a,c\n1,2\n", "rows.csv lacks the column 'b', which the model reads; it has 'a', 'c'"),
        ("c,d\n1,2\n", "rows.csv lacks the columns 'a', 'b', which the model reads; it has 'c'"),
        ("a,b\n1,2\n3\n", "rows.csv, line 3: 1 cell, but the header has 2"),
        ("a,a,b\n1,2,3\n", "rows.csv, line 1: two columns have the name 'a'"),
        ('a,b\n1,2\n"3,4\n', "rows.csv, line 3: unexpected end of data"),
        ("a,b\n1,2\n1,x\n", "rows.csv, line 3, column 'b': 'x' is not a finite number; leave"),
        ("a,b\n1,2\n1,inf\n", "rows.csv, line 3, column 'b': 'inf' is not a finite number"),
        ("a,b\n1,1e39\n", "line 2, column 'b': '1e39' does not fit into float32"),
    ],
)
def test_what_is_refused_names_its_place(tmp_path, content, message):
    path = tmp_path / "rows.csv"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        list(TableStream(path, features=["a", "b"], cells=2))
    assert message in str(caught.value)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"t\n" + b"fine\n" * 30_000 + "fünf\n".encode("latin1"))
    with pytest.raises(DataError, match=r"rows\.csv, line 30002: byte 0xfc is not UTF-8; convert"):
        list(TableStream(path, text="t"))


def test_parquet_errors_name_the_file_and_the_row(tmp_path):
    path = tmp_path / "rows.parquet"
    with pytest.raises(DataError, match=r"rows\.parquet: no such file"):
        TableStream(path, features=["a"])
    path.write_text("no parquet")
    with pytest.raises(DataError, match=r"rows\.parquet is not a Parquet file"):
        TableStream(path, features=["a"])
    write(path, {"a": [1.0, 2.0, float("inf")]})
    with pytest.raises(DataError, match="line 3, column 'a': inf is not a finite number"):
        list(TableStream(path, features=["a"], cells=2))
    write(path, {"t": [1, 2]})
    with pytest.raises(DataError, match="line 1, column 't': 1 is not text"):
        list(TableStream(path, text="t"))
    write(path, {"a": pa.array([], pa.float32())})
    with pytest.raises(DataError, match="has a header but no rows"):
        list(TableStream(path, features=["a"]))


def test_wrong_arguments_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"cannot read the ending .\.ods.; known: \.csv, \.tsv"):
        TableStream(tmp_path / "rows.ods", features=["a"])
    for columns in ({}, {"features": ["a"], "text": "t"}):
        with pytest.raises(DataError, match="name either feature columns"):
            TableStream(tmp_path / "rows.csv", **columns)
    with pytest.raises(DataError, match=r"rows\.csv: no such file"):
        TableStream(tmp_path / "rows.csv", text="t")


STATUS = Path("/proc/self/status")
PEAK = """
import sys
import time
from pathlib import Path
from hierlearn.datasets.tables.stream import TableStream
def peak(path):
    rows = sum(len(c.inputs) for c in TableStream(path, features=[f"x{k}" for k in range(20)]))
    # Not getrusage, which begins with what the parent held.
    return rows, int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
small, big = peak(sys.argv[1]), peak(sys.argv[2])
print(big[0], round(big[1] - small[1]))
"""


@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux's account of memory")
@pytest.mark.parametrize(("ending", "rows"), [(".csv", 60_000), (".parquet", 500_000)])
def test_memory_does_not_grow_with_the_file(tmp_path, ending, rows):
    columns = [f"x{k}" for k in range(20)]
    paths = [tmp_path / f"{name}{ending}" for name in ("small", "big")]
    values = np.random.default_rng(0).random((rows, 20), dtype=np.float32)
    for path, count in zip(paths, (rows // 3, rows), strict=True):
        if ending == ".csv":
            line = ",".join(f"{value:.5f}" for value in values[0])
            path.write_text(",".join(columns) + "\n" + f"{line}\n" * count)
        else:
            held = pa.table({name: values[:count, k] for k, name in enumerate(columns)})
            pq.write_table(held, path, row_group_size=rows // 10, compression="none")
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, paths)], capture_output=True, text=True, check=True
    )
    read, grown = map(int, done.stdout.split())
    assert read == rows
    assert grown < 20, f"{grown} MB"  # held, they take 30 and more


def test_ids_come_with_their_rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("key,a\nu,1\nv,2\nw,3\n")
    stream = TableStream(path, features=["a"], id_column="key", cells=2)
    assert [chunk.ids for chunk in stream] == [["u", "v"], ["w"]]
    assert stream.ignored == ()
    assert [chunk.ids for chunk in TableStream(path, features=["a"])] == [None]
    with pytest.raises(DataError, match="column 'a' is named twice, as an input and as id_column"):
        TableStream(path, features=["a"], id_column="a")


def test_a_hundred_thousand_columns_take_seconds(tmp_path):
    names = [f"x{number}" for number in range(100_000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    begun = time.process_time()
    stream = TableStream(path, features=names[1:])
    assert stream.ignored == ("x0",)
    assert time.process_time() - begun < 20
