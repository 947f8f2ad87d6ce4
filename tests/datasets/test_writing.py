"""Tables written some rows at a time appear whole or not at all."""

import datetime
import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hierlearn.datasets.tables import open_table
from hierlearn.datasets.tables import write as write_module
from hierlearn.datasets.tables.write import CodedColumn, check_ending, table_writer
from hierlearn.errors import DataError

PARTS = [{"a": [1, 2], "b": ["x", "y,z"], "c": [0.123456789, 1.0], "d": [True, False]}] * 3


def write(path):
    with table_writer(path, ["b", "a", "c", "d"]) as append:
        for part in PARTS:
            append(part)
            assert not path.exists()


def test_csv_and_tsv(tmp_path):
    write(tmp_path / "out.csv")
    write(tmp_path / "out.tsv")
    row = 'x,1,0.123457,true\n"y,z",2,1,false\n'
    assert (tmp_path / "out.csv").read_text() == "b,a,c,d\n" + row * 3
    assert (tmp_path / "out.tsv").read_text().splitlines()[2] == "y,z\t2\t1\tfalse"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.tsv"]


def test_parquet_by_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(write_module, "ROWS", 4)
    path = tmp_path / "out.parquet"
    write(path)
    table = pq.read_table(path)
    assert table.column_names == ["b", "a", "c", "d"]
    assert table.to_pydict()["c"] == [0.123456789, 1.0] * 3
    assert table.schema.field("d").type == "bool"
    assert pq.ParquetFile(path).metadata.num_row_groups == 2


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_an_error_on_the_way_leaves_what_was_there(tmp_path, name):
    path = tmp_path / name
    path.write_text("old")

    def fail_midway():
        with table_writer(path, ["a"]) as append:
            append({"a": [1]})
            raise DataError("a bad row")

    with pytest.raises(DataError, match="a bad row"):
        fail_midway()
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == [name]


FORMATS = [*write_module.WRITERS, *(f"{one}.gz" for one in write_module.TEXTS)]
ODD = ["a,b", 'say "no"', "two\nlines", "a\ttab", "007", "=1+1", "é 文", "#", "NA", "\\n"]


def test_what_is_written_is_read_again(tmp_path):
    numbers = [row / 8 for row in range(len(ODD))]
    for ending in FORMATS:
        path = tmp_path / f"out{ending}"
        with table_writer(path, ["note", "x"]) as append:
            for part in (slice(0, 5), slice(5, None)):
                append({"note": ODD[part], "x": numbers[part]})
        table = open_table(path).read(["note", "x"])
        assert list(table.texts("note")) == ODD, ending
        assert table.number_column("x").tolist() == numbers, ending


def test_json_lines_and_what_is_compressed(tmp_path):
    write(tmp_path / "out.jsonl")
    write(tmp_path / "out.csv.gz")
    write(tmp_path / "out.ndjson.gz")
    first = '{"b": "x", "a": 1, "c": 0.123456789, "d": true}'
    second = '{"b": "y,z", "a": 2, "c": 1.0, "d": false}'
    text = (tmp_path / "out.jsonl").read_text()
    assert text == f"{first}\n{second}\n" * 3
    assert gzip.decompress((tmp_path / "out.ndjson.gz").read_bytes()).decode() == text
    write(tmp_path / "out.csv")
    packed = (tmp_path / "out.csv.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "out.csv").read_bytes()
    write(tmp_path / "again.csv.gz")
    assert (tmp_path / "again.csv.gz").read_bytes() == packed  # without name or time


def test_every_kind_of_column_as_json(tmp_path):
    columns = {
        "coded": CodedColumn(["é", "b"], np.array([1, 0, 1])),
        "number": np.array([1.5, np.nan, np.inf], dtype=np.float32),
        "arrow": pa.array([None, 2, 3]),
        "day": [datetime.date(2024, 1, 2), None, datetime.date(2024, 1, 3)],
    }
    with table_writer(tmp_path / "out.jsonl", list(columns)) as append:
        append(columns)
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert lines[1] == '{"coded": "é", "number": null, "arrow": 2, "day": null}'
    assert json.loads(lines[0])["day"] == "2024-01-02"
    assert json.loads(lines[2]) == {"coded": "b", "number": None, "arrow": 3, "day": "2024-01-03"}


def test_standard_output_is_csv(capsys):
    with table_writer("-", ["a", "b"]) as append:
        append({"a": [1, 2], "b": ["x", "ü"]})
    assert capsys.readouterr().out == "a,b\n1,x\n2,ü\n"


@pytest.mark.parametrize("name", ["out.xlsx", "out.parquet.gz", "out.csv.bz2", "out.gz", "out"])
def test_other_endings_are_refused(tmp_path, name):
    with pytest.raises(DataError, match=r"cannot write the ending .*; known: \.csv, .*\.jsonl\.gz"):
        check_ending(tmp_path / name)
