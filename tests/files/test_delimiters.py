"""What separates cells: by the ending, found, or given."""

import gzip

import pytest

from hierlearn.datasets import open_table, read_table
from hierlearn.errors import DataError, DataWarning
from hierlearn.files import read_rows, stream_rows
from hierlearn.files.rows import check_delimiter, find_delimiter
from hierlearn.hierarchy import Hierarchy

NAMES = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}


def write(tmp_path, content, name="rows.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_delimiter_is_found_and_said(tmp_path, delimiter, end, mark):
    rows = [
        ["width", "note", "class"],
        ["1.5", f'"a{delimiter} b, c"', "x"],
        ["2", '"say ""p"""', "y"],
    ]
    path = write(tmp_path, mark + end.join(delimiter.join(row) for row in rows) + end)
    message = (
        rf"rows\.csv: cells are separated by {NAMES[delimiter]}, not by commas; set delimiter="
    )
    with pytest.warns(DataWarning, match=message):
        data = read_table(path, label="class", features=["width", "note"])
    assert data.labels == [["x"], ["y"]]
    assert data.inputs.columns["note"].tolist() == [f"a{delimiter} b, c", 'say "p"']
    assert open_table(path, delimiter).columns == ("width", "note", "class")  # said: no warning


def test_commas_in_a_file_of_tabs(tmp_path):
    with pytest.warns(DataWarning, match="separated by commas, not by tabs"):
        assert open_table(write(tmp_path, "a,b\n1,2\n", "rows.tsv")).columns == ("a", "b")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x,class\n1,a;b\n2,c;d\n", ","),  # several labels in a cell
        ("class\na;b\nc;d\n", ","),  # the header has one column
        ("x;y\n1,5;2,5\n0,1;0,2\n", ";"),  # decimal commas
        ("x, y\n1,2\n", ","),
        ("x;y;z\n1;2;3\n4;5\n1;1;1\n", ";"),  # a row that is too short, which is named then
        ("a|b,c|d\n1,2\n", ","),
        ('"a;b",c\n1,2\n', ","),
        ("text\nhello\n", ","),
        ("", ","),
        ("x,y\n1,2\n1,2,3\n", ","),
    ],
)
def test_the_rule(tmp_path, text, found):
    assert find_delimiter(write(tmp_path, text)) == found


def test_a_long_row_at_the_end_of_the_sample_does_not_count(tmp_path):
    text = "x;y\n" + "1;2\n" * 20 + f'"{"word; " * 20_000}";3\n'
    assert find_delimiter(write(tmp_path, text)) == ";"


def test_a_row_of_another_length_is_named_with_the_found_delimiter(tmp_path):
    path = write(tmp_path, "x;y;class\n1;2;a\n4;5\n1;1;b\n")
    with (
        pytest.warns(DataWarning, match="semicolons"),
        pytest.raises(DataError, match="line 3: 2 cells, but the header has 3"),
    ):
        read_table(path, label="class")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named(tmp_path, encoding):
    path = write(tmp_path, "x,y\n1,2\n".encode(encoding))
    for read in (open_table, read_rows, stream_rows):
        with pytest.raises(DataError, match=r"rows\.csv is not UTF-8: it looks like UTF-16; conv"):
            read(path)


def test_a_packed_file_by_a_plain_name_is_named(tmp_path):
    path = write(tmp_path, gzip.compress(b"x,y\n1,2\n", mtime=0x3B3B3B3B))  # semicolons inside
    for read in (open_table, read_rows, stream_rows):
        with pytest.raises(DataError, match=r"rows\.csv is packed by gzip; unpack it first"):
            read(path)


def test_a_given_delimiter(tmp_path):
    path = write(tmp_path, "x;y,class\n1;2,a\n2;3,b\n")
    assert open_table(path, ";").columns == ("x", "y,class")
    assert open_table(path, ",").columns == ("x;y", "class")
    tabs = write(tmp_path, "x\ty\n1\t2\n", "tabs.csv")
    for word in ("tab", "\\t", "\t"):
        assert open_table(tabs, word).columns == ("x", "y")
    for wrong in ("", ";;", '"', "\n", "é"):
        with pytest.raises(DataError, match="delimiter must be one character such as"):
            check_delimiter(wrong)
    with pytest.raises(DataError, match="delimiter= goes with CSV and TSV files, not Parquet"):
        open_table(tmp_path / "rows.parquet", ";")


def test_a_taxonomy_with_semicolons(tmp_path):
    path = write(tmp_path, "parent;child\n;animal\nanimal;dog\n", "tree.csv")
    with pytest.warns(DataWarning, match=r"tree\.csv: cells are separated by semicolons"):
        assert Hierarchy.read(path).names == ("animal", "animal/dog")
