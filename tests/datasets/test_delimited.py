"""CSV through pyarrow is CSV through Python's csv module: cells, lines and errors."""

import csv
import io
import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hierlearn.datasets import read_table
from hierlearn.datasets.tables import delimited
from hierlearn.datasets.tables.delimited import DelimitedFile
from hierlearn.datasets.tables.stream import TableStream
from hierlearn.errors import DataError, DataWarning

pytest.importorskip("pyarrow")

PIECES = [
    "a",
    "0",
    "1.5",
    ",",
    '"',
    "\n",
    "\r\n",
    " ",
    '""',
    "é",
    "\u3000",
    "\u2028",
    ";",
    "NA",
    "\t",
]


def rows_of(chunks, columns):
    """All cells and lines, or the error."""
    try:
        found = list(chunks)
    except DataError as error:
        return str(error)
    cells = {name: [cell for one in found for cell in one.cells(name)] for name in columns}
    return cells, [int(line) for one in found for line in one.lines]


def check_equal(path, text, sizes=(None, 1, 3)):
    path.write_bytes(text.encode())
    try:
        file = DelimitedFile(path, ",")
    except DataError:
        return None
    if len(file.columns) < 2:
        return None
    expected = rows_of(file.parsed_chunks(file.columns), file.columns)
    for size in sizes:
        assert rows_of(file.chunks(file.columns, size), file.columns) == expected
    some = file.columns[::2]
    if not isinstance(expected, str):
        cells, lines = rows_of(file.chunks(some), some)
        assert cells == {name: expected[0][name] for name in some}
        assert lines == expected[1]
    return expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("csv")


@pytest.mark.parametrize("block", [1 << 20, 16])
@pytest.mark.parametrize(
    "text",
    [
        'a,b\n1,"x\ny"\n2,"say ""hi"""\n',
        'a,b\r\n1,"x\r\ny"\r\n\r\n2,z\r\n',
        "a,b\n1,2\n\n3,4\n\n\n",
        "a,b\n,\n ,\t\n1,2",
        'a,b\n"",""\n" x "," "\n',
        'a,b\n5" pipe,1\n6,2\n',  # a quote that encloses nothing
        'a,b\n1,2\n5" pipe,1\n6,"x, y"\n',
        'a,b\n1,"x"y\n',  # refused by both
        'a,b\n1,2\n3,"open\n4,5\n',
        "a,b\n1,2\n1\n",
        "a,b\n1,2\n1,2,3\n",
        "a,b\n1,2\n   \n3,4\n",  # a line of blanks is blank
        'a,b\n1,2\n""\n',
        "a,b\r1,2\r3,4\r",  # carriage returns alone
        "a,b\n1,x\ry\n",
        "\ufeffa,b\n1,2\n",
        "a,b\n007,NA\nnull,None\n1_000,é\u2028\n",
        "a,b\n\x1c1\x1f,\u30002\u2003\n",  # what strip strips
        "a,,c\n1,2,3\n",
        "a,b\n",
        "a,b",
        'a,b\n1,""""\n2,""","""\n',
    ],
)
def test_nasty_files(folder, text, block, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", block)
    monkeypatch.setattr(delimited, "SMALL_BLOCK", block)
    assert check_equal(folder / "rows.csv", text) is not None


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@example('1,"\n",')
def test_any_file(folder, text):
    check_equal(folder / "any.csv", "a,b\n" + text)


@given(
    st.lists(
        st.tuples(*[st.lists(st.sampled_from(PIECES), max_size=4).map("".join)] * 3), max_size=8
    )
)
def test_any_cells_that_are_written_are_read(folder, rows):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b", "c"), *rows])
    expected = check_equal(folder / "written.csv", text.getvalue())
    wanted = [[cell.replace("\r\n", "\n").strip() for cell in row] for row in rows]
    assert [list(row) for row in zip(*expected[0].values(), strict=True)] == wanted


@given(st.text(PIECES[1] + "12.+-eE_ naifxINF١", max_size=6))
@example("1e400")
@example("1e39")
@example(" 1")
@example("infinity")
def test_numbers(folder, cell):
    path = folder / "numbers.csv"
    path.write_text(f"a,b\n1,2\n{cell},3\n,4\n")
    file = DelimitedFile(path, ",")
    found = []
    for chunk in (*file.chunks(["a"]), *file.parsed_chunks(["a"])):
        try:
            found.append(chunk.number_column("a").tobytes())
        except DataError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_rounding_is_that_of_python(folder):
    values = np.random.default_rng(0).normal(size=2000) * 10.0 ** np.arange(2000) ** 0.4
    path = folder / "floats.csv"
    path.write_text("a,b\n" + "".join(f"{value!r},{value:.3g}\n" for value in values.tolist()))
    (chunk,) = DelimitedFile(path).chunks(["a", "b"])
    expected = np.array([[v, float(f"{v:.3g}")] for v in values.tolist()])
    np.testing.assert_array_equal(chunk.numbers(["a", "b"]), expected.astype(np.float32))


def test_bytes_that_are_not_utf8_are_named(folder):
    path = folder / "latin.csv"
    path.write_bytes(b"a,b\n1,2\n3,\xe9\n")
    with pytest.raises(DataError, match="line 3: byte 0xe9 is not UTF-8"):
        read_table(path, label="b")


def test_a_mixed_table_is_the_same_without_pyarrow(folder, monkeypatch):
    path = folder / "mixed.csv"
    lines = [
        f'S{n},"blue, {n} pan {n}",{n / 7:.3f},b{n % 3},2024-0{n % 9 + 1}-11,00{n % 4},NA,k{n % 2}'
        for n in range(40)
    ]
    path.write_text("sku,title,price,brand,day,code,none,class\n" + "\n".join(lines) + "\n")
    found = []
    for has in (True, False):
        monkeypatch.setattr(delimited, "has_arrow", lambda has=has: has)
        data = read_table(path, label="class", ignore=["sku"])
        found.append((data.digest(), data.inputs.kinds, data.inputs.ignored, data.labels))
    assert found[0] == found[1]
    assert data.inputs.kinds["title"] == "text"


# ---------------------------------------------------------------------- one column


@pytest.mark.parametrize("text", ['text\na b\n""\nc d\n', 'text\r\n"a b"\r\n""\r\nc d\r\n\r\n\r\n'])
def test_an_empty_cell_of_the_only_column_is_a_row(folder, text):
    path = folder / "one.csv"
    path.write_text(text, newline="")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (chunk,) = TableStream(path, text="text")
    assert chunk.inputs == ["a b", "", "c d"]
    assert chunk.lines == [2, 3, 4]


def test_a_blank_line_of_the_only_column_is_a_row_if_another_follows(folder):
    path = folder / "blank.csv"
    path.write_text("text\na\n\n  \nd\n\n  \n")
    message = r"blank\.csv: 2 blank lines \(the first is line 3\) read as empty cells, since"
    with pytest.warns(DataWarning, match=message):
        (chunk,) = TableStream(path, text="text")
    assert chunk.inputs == ["a", "", "", "d"]
    assert chunk.lines == [2, 3, 4, 5]


def test_a_row_with_too_many_cells_for_one_column(folder):
    path = folder / "wide.csv"
    path.write_text("text\nhello\nhello, world\n")
    with pytest.raises(DataError, match="line 3: 2 cells, but the header has 1; quote the cell"):
        list(TableStream(path, text="text"))
