"""JSON lines, Excel and SQLite: every way to write a table reads alike; what is wrong is named."""

import bz2
import csv
import datetime
import gzip
import io
import json
import lzma
import sqlite3
import time
import zipfile
from contextlib import closing

import numpy as np
import openpyxl
import pyarrow as pa
import pytest
from pyarrow import feather

from fuzz.engine import Watch, resident
from hierlearn.datasets import open_table, read_table
from hierlearn.errors import DataError, DataWarning, HierarchyError
from hierlearn.files import reading

DAY = datetime.date(2024, 2, 28)
ROWS = [
    {
        "n": [1.5, -2, None, 4][i % 4],
        "note": ["two words", "größer, and", 'a "quote"', None][i % 4],
        "day": DAY + datetime.timedelta(days=i),
        "used": i % 3 == 0,
        "class": ["a/x", "a/y;b", "b"][i % 3],
    }
    for i in range(12)
]
NAMES = list(ROWS[0])


def write_csv(path):
    out = io.StringIO()
    writer = csv.DictWriter(out, NAMES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(ROWS)
    path.write_text(out.getvalue())


def write_json(path):
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in ROWS))


def write_excel(path, more=()):
    book = openpyxl.Workbook()
    for row in (NAMES, *(row.values() for row in ROWS), *more):
        book.active.append(list(row))
    book.save(path)


def write_database(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE pets ({', '.join(map(repr, NAMES))})")
        rows = [
            [str(one) if isinstance(one, datetime.date) else one for one in row.values()]
            for row in ROWS
        ]
        database.executemany("INSERT INTO pets VALUES (?, ?, ?, ?, ?)", rows)
        database.execute("CREATE VIEW seen AS SELECT * FROM pets")


def write_arrow(path):
    feather.write_feather(pa.Table.from_pylist(ROWS), str(path))


WAYS = {".jsonl": write_json, ".xlsx": write_excel, ".db": write_database, ".feather": write_arrow}


@pytest.mark.parametrize("ending", WAYS)
def test_a_mixed_table_is_the_same_in_every_format(tmp_path, ending):
    write_csv(tmp_path / "rows.csv")
    WAYS[ending](tmp_path / f"rows{ending}")
    kinds = {"used": "boolean", "note": "text"}
    first = read_table(tmp_path / "rows.csv", label="class", column_kinds=kinds)
    other = read_table(tmp_path / f"rows{ending}", label="class", column_kinds=kinds)
    assert other.inputs.kinds == first.inputs.kinds
    assert other.labels == first.labels
    for name in NAMES[:-1]:
        np.testing.assert_array_equal(other.inputs.columns[name], first.inputs.columns[name])


@pytest.mark.parametrize("ending", [".csv.gz", *WAYS])
def test_what_cannot_be_cut_is_one_part(tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    if ending == ".csv.gz":
        write_csv(tmp_path / "rows.csv")
        path.write_bytes(gzip.compress((tmp_path / "rows.csv").read_bytes()))
    else:
        WAYS[ending](path)
    file = open_table(path)
    (part,) = file.parts(5)
    chunks = list(file.part(part).chunks(["n"], 5))
    assert [len(one) for one in chunks] == [5, 5, 2]


def refused(path, **more):
    with pytest.raises(DataError) as caught:
        read_table(path, **{"label": "class", **more})
    return str(caught.value)


# ---------------------------------------------------------------------- JSON lines


def test_keys_of_their_own_in_every_row_are_refused_before_memory_is_taken(tmp_path):
    """260 KB of rows whose cells would take three gigabytes, nearly all of them empty."""
    path = tmp_path / "x.jsonl"
    lines = [f'{{"c{row}": 1, "class": "x{row % 2}"}}\n' for row in range(20_000)]
    path.write_text("".join(lines))
    begin = time.process_time()
    assert "20,001 columns and more than 9," in refused(path)
    assert time.process_time() - begin < 10
    path.write_text("".join(lines[:1000]))
    assert len(read_table(path, label="class")) == 1000


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_characters_are_named(tmp_path, encoding):
    path = tmp_path / "x.jsonl"
    path.write_bytes('{"a": 1, "class": "x"}\n{"a": 2, "class": "größer"}\n'.encode(encoding))
    assert "is not UTF-8: it looks like UTF-16" in refused(path)


def test_a_label_with_a_nul_is_refused(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1, "class": "x\\u0000"}\n{"a": 2, "class": "y"}\n')
    with pytest.raises(HierarchyError, match=r"x.jsonl: class name 'x\\x00' holds a NUL character"):
        read_table(path, label="class")


def test_a_row_of_json_may_lack_keys_and_a_later_one_may_have_more(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1, "class": ["x", "y"]}\n\n{"class": "x", "b": 2}\n{"b": null}\n')
    file = open_table(path)
    assert file.columns == ("a", "class", "b")
    assert file.num_rows == 3
    data = read_table(path, label="class")
    np.testing.assert_array_equal(data.inputs, [[1, np.nan], [np.nan, 2], [np.nan, np.nan]])
    assert data.labels == [["x", "y"], ["x"], []]
    assert list(data.lines) == [1, 3, 4]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"a": 1, "class": "x"}\n{"a": \n', "line 2: not JSON: Expecting value"),
        ('[{"a": 1}]\n', "line 1: a JSON list; write one object per line"),
        ('[\n{"a": 1}\n]\n', "line 1: not JSON: Expecting value; write one object per line, not"),
        ('{"a": {"b": 1}, "class": "x"}\n', "line 1, column 'a': the value is an object; write"),
        ('{"a": 1, "class": true}\n', "a label is text, not True"),
        ('{"a": 1, "class": "\\ud800"}\n', "line 1: half of a surrogate pair, which is no text"),
        ('{"a": "z1", "class": "x"}\n', "line 1, column 'a': 'z1' is not a finite number; leave"),
        ('{"a": NaN, "class": "x"}\n', "line 1, column 'a': nan is not a finite number; leave"),
        ('{"a": ' + "1" * 400 + ', "class": "x"}\n', "is not a finite number"),
        ("\n", "is empty"),
        ("[" * 100_000, "line 1: is nested too deeply"),
    ],
)
def test_wrong_json_names_its_line(tmp_path, text, wrong):
    (tmp_path / "rows.jsonl").write_text(text)
    assert wrong in refused(tmp_path / "rows.jsonl", column_kinds={"a": "number"})


def test_an_integer_of_many_digits_is_refused_with_its_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"x": 1, "class": "a"}\n{"x": 1' + "0" * 400 + ', "class": "b"}\n')
    message = refused(path)
    assert "line 2, column 'x': 10000" in message
    assert "is not a finite number" in message


# ---------------------------------------------------------------------- Excel


def test_a_sheet_by_its_name_and_blank_rows(tmp_path):
    book = openpyxl.Workbook()
    book.active.title = "notes"
    sheet = book.create_sheet("March 2024")
    for row in ([], ["a", "class", None], [1, " x "], [None, "  "], [], ["=1+1", "y"]):
        sheet.append(row)
    path = tmp_path / "rows.xlsx"
    book.save(path)
    data = read_table(f"{path}::March 2024", label="class")
    assert data.labels == [["x"], ["y"]]
    assert list(data.lines) == [3, 6]  # as the sheet counts them
    assert np.isnan(data.inputs[1, 0])  # the formula was never computed
    assert data.name == "rows"
    with pytest.raises(DataError, match=r"unknown sheet 'March'; did you mean 'March 2024'"):
        open_table(f"{path}::March")
    with pytest.warns(DataWarning, match="the sheet 'notes' is read, and not 'March 2024'; name a"):
        assert "is empty" in refused(path)


def test_a_cell_without_a_column_is_refused(tmp_path):
    write_excel(tmp_path / "rows.xlsx", [[1, "n", DAY, True, "b", "over"]])
    wrong = "line 14: a cell beyond the 5 columns of the header; name its column in the first row"
    assert wrong in refused(tmp_path / "rows.xlsx")


def repacked(path, name, content):
    """Replace a file in a workbook."""
    with zipfile.ZipFile(path) as old:
        files = {one: old.read(one) for one in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for one, data in {**files, name: content}.items():
            new.writestr(one, data)


def test_a_workbook_that_is_none_or_far_too_large(tmp_path):
    path = tmp_path / "rows.xlsx"
    path.write_bytes(b"PK\x03\x04 no zip")
    assert "is not an Excel workbook that can be read" in refused(path)
    write_excel(path)
    repacked(path, "xl/sharedStrings.xml", b" " * (reading.FREE + (1 << 24)))
    assert "bytes once decompressed; is it the right file?" in refused(path)


def test_entities_of_a_workbook_do_not_grow(tmp_path):
    path = tmp_path / "rows.xlsx"
    write_excel(path)
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "lol"}">' for i in range(12))
    with zipfile.ZipFile(path) as packed:
        sheet = packed.read("xl/worksheets/sheet1.xml").decode()
    sheet = f"<!DOCTYPE x [{entities}]>" + sheet.replace("two words", "&e11;", 1)
    repacked(path, "xl/worksheets/sheet1.xml", sheet.encode())
    assert "is not an Excel workbook that can be read" in refused(path)


def test_a_row_at_the_end_of_a_sheet_is_found(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["a", "class"])
    book.active.cell(1 << 20, 1, 5)
    book.active.cell(1 << 20, 2, "x")
    book.save(tmp_path / "rows.xlsx")
    assert list(read_table(tmp_path / "rows.xlsx", label="class").lines) == [1 << 20]


# ---------------------------------------------------------------------- SQLite


def test_a_table_of_a_database_by_its_name(tmp_path):
    path = tmp_path / "rows.db"
    write_database(path)
    before = path.read_bytes()
    assert len(open_table(f"{path}::pets").columns) == 5
    with closing(sqlite3.connect(path)) as database, database:
        database.execute('CREATE TABLE "odd ""name" ("a ""b" INT, class TEXT)')
        database.execute("""INSERT INTO "odd ""name" VALUES (7, 'x')""")
    assert read_table(f'{path}::odd "name', label="class").inputs.tolist() == [[7]]
    wrong = f"has the tables 'odd \"name', 'pets'; name one as {path}::odd \"name"
    assert wrong in refused(path)
    assert "unknown table 'pet'; did you mean 'pets'" in refused(f"{path}::pet")
    assert "'seen' is a view; write its rows into a table" in refused(f"{path}::seen")
    assert before != path.read_bytes()
    before = path.read_bytes()
    read_table(f"{path}::pets", label="class", features=["n"])
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["rows.db"]


def test_a_database_that_is_none(tmp_path):
    path = tmp_path / "rows.db"
    path.write_bytes(b"SQLite format 3\0" + bytes(200))
    assert "is not an SQLite database that can be read: " in refused(path)
    path.unlink()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE VIRTUAL TABLE found USING fts5(a, class)")
    assert "'found' is a virtual table; write its rows" in refused(f"{path}::found")
    with closing(sqlite3.connect(path)) as database, database:  # whatever its text says
        database.execute("PRAGMA writable_schema = ON")
        words = "CREATE/**/VIRTUAL/**/TABLE found USING fts5(a, class)"
        database.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'found'", [words])
    assert "'found' is a virtual table; write its rows" in refused(f"{path}::found")
    assert "no such file" in refused(tmp_path / "other.db")


# ---------------------------------------------------------------------- compressed


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_a_compressed_table_is_measured_and_damage_is_named(tmp_path, monkeypatch, ending):
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[ending]
    path = tmp_path / f"rows.csv{ending}"
    path.write_bytes(pack(b"a,class\n" + b"1,x\n" * 100_000))
    assert len(read_table(path, label="class")) == 100_000
    packed = path.read_bytes()
    monkeypatch.setattr(reading, "FREE", 1 << 16)
    monkeypatch.setattr(reading, "GROWTH", 2)
    assert "bytes once decompressed; is it the right file?" in refused(path)
    monkeypatch.undo()
    path.write_bytes(packed[:-9])
    assert f"{path} is not a whole {reading.KINDS[ending]} file: " in refused(path)
    path.write_bytes(b"a,class\n1,x\n")
    assert "rename it if it is not compressed" in refused(path)


# ---------------------------------------------------------------------- Arrow: what repeats

COUNT, LONG = 100_000, "long " * 20_000  # of some kilobytes; written out, ten gigabytes
ENDS = pa.array([COUNT], pa.int32())
REPEATED = {
    "dictionary": pa.DictionaryArray.from_arrays(np.zeros(COUNT, np.int32), pa.array([LONG])),
    "run ends": pa.RunEndEncodedArray.from_arrays(ENDS, pa.array([LONG])),
}
REPEATED["list"] = pa.FixedSizeListArray.from_arrays(REPEATED["dictionary"], 2)
REPEATED["struct"] = pa.StructArray.from_arrays([REPEATED["dictionary"]], ["x"])


@pytest.mark.parametrize("name", REPEATED)
@pytest.mark.parametrize("role", [{}, {"text": "note"}, {"label": "note"}, {"id_column": "note"}])
def test_texts_that_repeat_are_counted_before_they_are_written_out(tmp_path, name, role):
    path = tmp_path / "rows.arrow"
    column = REPEATED[name]
    classes = pa.array(["x", "y"] * (len(column) // 2))
    table = pa.table({"note": column, "a": np.arange(len(column)), "class": classes})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    with Watch() as watch:
        before = resident()
        assert "far more bytes once decompressed" in refused(path, **role)
    assert watch.most - before < 200 << 20


def test_values_that_take_no_room_in_a_file_are_counted(tmp_path):
    path = tmp_path / "rows.arrow"
    table = pa.table({"a": pa.nulls(100_000_000), "class": pa.nulls(100_000_000)})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    assert path.stat().st_size < 1000
    assert "far more bytes once decompressed" in refused(path)


def test_categories_that_repeat_as_usual_are_read(tmp_path):
    path = tmp_path / "rows.feather"
    kinds = pa.array([f"a category of some words {row % 50}" for row in range(200_000)])
    table = pa.table({"kind": kinds.dictionary_encode(), "class": ["x", "y"] * 100_000})
    feather.write_feather(table, str(path), compression="zstd")
    assert len(read_table(path, label="class")) == 200_000
