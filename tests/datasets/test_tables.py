"""CSV, TSV and Parquet tables."""

import numpy as np
import pytest

from hierlearn import Hierarchy
from hierlearn.datasets import read_table, stream_table
from hierlearn.errors import DataError, HierarchyError, HierlearnError, LabelError

CSV = """id,width,height,class,part
1,0.5,2,animal/dog;plant,train
2,,3,animal/cat,train
3,1.5,-1e3,,test
"""


def write(tmp_path, text, name="rows.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_label_column_with_inferred_hierarchy(tmp_path):
    data = read_table(
        write(tmp_path, CSV), label="class", features=["width", "height"], split="part"
    )
    np.testing.assert_array_equal(data.inputs, np.float32([[0.5, 2], [np.nan, 3], [1.5, -1000]]))
    assert data.labels == [["animal/dog", "plant"], ["animal/cat"], []]
    assert data.hierarchy.names == ("animal", "plant", "animal/cat", "animal/dog")
    assert {name: rows.tolist() for name, rows in data.splits.items()} == {
        "train": [0, 1],
        "test": [2],
    }
    assert data.split("test").labels == [[]]


def test_blanks_around_names_say_nothing(tmp_path):
    data = read_table(write(tmp_path, "x,y\n1,a / b ; c\n2,a/b\n"), label="y")
    assert data.labels == [["a/b", "c"], ["a/b"]]
    assert data.hierarchy.names == ("a", "c", "a/b")


def test_every_other_column_is_a_feature(tmp_path):
    data = read_table(write(tmp_path, CSV), label="class", split="part")
    assert data.feature_names == ("id", "width", "height")


def test_tsv_with_level_columns(tmp_path):
    text = "k\tf\ts\tx\nanimal\tdog\tpug\t1\nanimal\tdog\t\t2\n\t\t\t3\n"
    data = read_table(write(tmp_path, text, "rows.tsv"), levels=["k", "f", "s"])
    assert data.labels == [["animal/dog/pug"], ["animal/dog"], []]
    assert data.inputs.ravel().tolist() == [1, 2, 3]


def test_given_hierarchy_as_object_or_file_and_bare_names(tmp_path):
    h = Hierarchy.from_paths(["animal/dog", "animal/cat"])
    path = write(tmp_path, "x,y\n1,dog\n2,animal\n")
    taxonomy = tmp_path / "h.json"
    taxonomy.write_text(h.to_json())
    for hierarchy in (h, taxonomy, str(taxonomy)):
        data = read_table(path, label="y", hierarchy=hierarchy)
        assert data.labels == [["animal/dog"], ["animal"]]
        assert data.hierarchy == h


def test_the_separator_of_a_given_hierarchy_is_used(tmp_path):
    h = Hierarchy.from_paths(["a/c > b"], sep=" > ")
    data = read_table(write(tmp_path, "x,l1,l2\n1,a/c,b\n"), levels=["l1", "l2"], hierarchy=h)
    assert data.labels == [["a/c > b"]]


def test_texts(tmp_path):
    data = read_table(write(tmp_path, 'text,y\n"a, b",u\n,v\n'), label="y", text="text")
    assert data.inputs == ["a, b", ""]
    assert data.is_text


def test_parquet_with_lists_nulls_and_numbers(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = pa.table(
        {
            "x": [1.0, None, 3.0],
            "n": [1, 2, 3],
            "y": [["a/b", "c"], None, ["a"]],
            "t": ["p", "q", ""],
        }
    )
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path)
    data = read_table(path, label="y", features=["x", "n"])
    np.testing.assert_array_equal(data.inputs, np.float32([[1, 1], [np.nan, 2], [3, 3]]))
    assert data.labels == [["a/b", "c"], [], ["a"]]
    assert read_table(path, label="y", text="t").inputs == ["p", "q", ""]


def write_parquet(path, labels):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"x": [1.0] * len(labels), "y": labels}), path)
    return path


def test_parquet_lists_are_checked_like_cells(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", [["a/b", None, ""], [None], [" c "], ["d;e"]])
    assert read_table(path, label="y").labels == [["a/b"], [], ["c"], ["d;e"]]
    path = write_parquet(tmp_path / "b.parquet", [[1, 2], [None]])
    assert read_table(path, label="y").labels == [["1", "2"], []]
    for labels, kind in (([["a"], []], None), ([[True], [False]], "bool"), ([[1.5], []], "float")):
        path = write_parquet(tmp_path / "c.parquet", labels)
        if kind:
            message = rf"c\.parquet, line 1, column 'y': a label is text, not .* \({kind}\)"
            with pytest.raises(DataError, match=message):
                read_table(path, label="y")
    path = write_parquet(tmp_path / "d.parquet", [None, True])
    with pytest.raises(DataError, match=r"line 2, column 'y': a label is text, not True \(bool\)"):
        read_table(path, label="y")


def test_a_row_of_empty_cells_is_a_row_and_a_blank_line_is_none(tmp_path):
    data = read_table(write(tmp_path, "x,l\n1,a\n,\n\n  \n3,b\n"), label="l")
    np.testing.assert_array_equal(data.inputs.ravel(), np.float32([1, np.nan, 3]))
    assert data.labels == [["a"], [], ["b"]]
    data = read_table(write(tmp_path, "x\tl\n1\ta\n\t\n", "a.tsv"), label="l")
    assert data.labels == [["a"], []]


def test_long_texts_are_read(tmp_path):
    data = read_table(write(tmp_path, f"t,y\n{'word ' * 40_000},a\n"), label="y", text="t")
    assert len(data.inputs[0]) == 199_999


def test_parquet_that_is_none_or_holds_nan(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    with pytest.raises(DataError, match=r"a\.parquet is not a Parquet file"):
        read_table(write(tmp_path, "hello", "a.parquet"), label="y")
    with pytest.raises(DataError, match="no such file"):
        read_table(tmp_path / "b.parquet", label="y")
    pq.write_table(pa.table({"x": [1.0, float("nan")], "y": ["a", "b"]}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"c\.parquet, line 2, column 'x': nan is not a finite"):
        read_table(tmp_path / "c.parquet", label="y")


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        (
            "x,y\n" + "1,a\n2,a\n" * 5 + "red,a\n",
            {"label": "y"},
            DataError,
            r"line 12, column 'x': 'red' is not a finite number; leave the cell empty if it is",
        ),
        ('x,y\n"1,000",a\n', {"label": "y"}, DataError, r"line 2, column 'x': '1,000' is not"),
        ("x,y\n20%,a\n", {"label": "y"}, DataError, r"line 2, column 'x': '20%' is not"),
        ("x,y\nred,a\n", {"label": "y"}, DataError, r"no column can be used: .*has one value"),
        ("x,y\ninf,a\n", {"label": "y"}, DataError, r"line 2, column 'x': 'inf' is not"),
        ("x,y\n1e39,a\n", {"label": "y"}, DataError, r"'1e39' does not fit into float32.*scale"),
        ("x,y\n1_000,a\n", {"label": "y"}, DataError, r"column 'x': '1_000' is not a finite"),
        ("x,y\n2,a\n１,a\n", {"label": "y"}, DataError, r"line 3, column 'x': '１' is not"),
        ("x,y\n1,a,3\n", {"label": "y"}, DataError, r"line 2: 3 cells, but the header has 2"),
        ("x,y\n1,a\n", {"label": "z"}, DataError, r"unknown column 'z'; known: x, y"),
        ("xx,y\n1,a\n", {"label": "y", "features": ["xy"]}, DataError, r"unknown column 'xy'; did"),
        (
            "x,y\n1,a//b\n",
            {"label": "y"},
            HierarchyError,
            r"rows\.csv, line 2, column 'y': the path 'a//b' has an empty part; write a/b/c",
        ),
        ("x,y\n1,\n", {"label": "y"}, DataError, r"no label at all, so no hierarchy"),
        ("x,y\n", {"label": "y"}, DataError, r"has a header but no rows"),
        ("", {"label": "y"}, DataError, r"rows\.csv is empty"),
        ("y\na\n", {"label": "y"}, DataError, r"has no feature column; it has 'y'"),
        ("x,y\n1,a\n", {}, DataError, r"name either the label column"),
        ("x,y\n1,a\n", {"label": "y", "levels": ["y"]}, DataError, r"name either the label column"),
        (
            "x,y\n1,a\n",
            {"label": "y", "text": "x", "features": ["x"]},
            DataError,
            r"column 'x' is named twice, as features and as text",
        ),
        (
            "x,y\n1,a\n",
            {"label": "y", "text": "y"},
            DataError,
            r"'y' is named twice, as label and",
        ),
        ("x,y\n1,a\n", {"label": "y", "features": ["x", "y"]}, DataError, r"'y' is named twice"),
        ("x,y\n1,a\n", {"levels": ["y", "y"]}, DataError, r"named twice, as levels and as levels"),
        ("x,y\n1,a\n", {"levels": []}, DataError, r"levels names no column"),
        ("x,y\n1,a\n", {"label": "y", "label_sep": "/"}, DataError, r"label_sep '/' joins labels"),
        ("x,y\n1,a\n", {"label": "y", "label_sep": ""}, DataError, r"neither may be empty"),
        ("x,y\n1,a\n", {"label": "y", "label_sep": ">", "sep": " > "}, DataError, r"sep ' > '"),
        ("x,y\n1,a\n", {"label": "y", "sep": ""}, HierarchyError, r"sep must be a non-empty"),
        (
            "x,y,s\n1,a,\n",
            {"label": "y", "split": "s"},
            DataError,
            r"line 2, column 's': the row has no split; write",
        ),
    ],
)
def test_bad_tables_name_the_place_and_the_remedy(tmp_path, text, options, error, message):
    with pytest.raises(error, match=message):
        read_table(write(tmp_path, text), **options)


def test_labels_outside_a_given_hierarchy_name_line_and_nearest(tmp_path):
    h = Hierarchy.from_paths(["animal/dog"])
    path = write(tmp_path, "x,y\n1,dog\n2,dgo\n")
    with pytest.raises(LabelError, match=r"line 3: unknown label 'dgo'; did you mean 'dog'"):
        read_table(path, label="y", hierarchy=h)
    with pytest.raises(LabelError, match=r"line 2: label 'root' is the implicit root"):
        read_table(write(tmp_path, "x,y\n1,root\n"), label="y", hierarchy=h)


def test_unknown_ending(tmp_path):
    with pytest.raises(HierlearnError, match=r"cannot read the ending '\.ods'; known: \.csv"):
        read_table(write(tmp_path, "x", "a.ods"), label="y")


def test_a_column_of_ids(tmp_path):
    path = write(tmp_path, "x,y,key\n1,a,u1\n2,b, u2 \n3,a,u1\n")
    data = read_table(path, label="y", id_column="key")
    assert data.ids == ["u1", "u2", "u1"]
    assert data.feature_names == ("x",)
    assert data.take([2, 1]).ids == ["u1", "u2"]
    assert read_table(path, label="y", features=["x"]).ids is None
    with pytest.raises(DataError, match="column 'y' is named twice, as label and as id_column"):
        read_table(path, label="y", id_column="y")
    with pytest.raises(DataError, match="unknown column 'kez'; did you mean 'key'"):
        read_table(path, label="y", id_column="kez")
    path = write(tmp_path, "x,y,key\n1,a,u1\n2,b,\n")
    with pytest.raises(DataError, match=r"line 3, column 'key': the row has no id; write one, or"):
        read_table(path, label="y", id_column="key")


def test_ids_of_parquet_are_texts_also_streamed(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": ["a", "b"], "key": [7, 8]}), path)
    assert read_table(path, label="y", id_column="key").ids == ["7", "8"]
    assert stream_table(path, label="y", id_column="key").ids == ["7", "8"]


# ---------------------------------------------------------------------- wide tables


class Name(str):
    """The name of a column that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_every_column_is_looked_up_a_few_times(tmp_path, monkeypatch, ending):
    """Not once for every other column: names are compared a few times each."""
    pytest.importorskip("pyarrow")
    from hierlearn.datasets import READERS

    count = 3_000
    names = [f"c{number}" for number in range(count)]
    path = tmp_path / f"x{ending}"
    if ending == ".csv":
        rows = [",".join(map(str, range(row, row + count))) + f",a/{row}" for row in range(3)]
        path.write_text("\n".join([",".join([*names, "class"]), *rows]))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: [float(n), n + 1.0, n + 2.0] for n, name in enumerate(names)}
        pq.write_table(pa.table({**columns, "class": ["a/0", "a/1", "a/2"]}), path)
    reader = READERS[ending]

    class Counting(reader):
        def __init__(self, *given):
            super().__init__(*given)
            self.columns = tuple(map(Name, self.columns))

    monkeypatch.setitem(READERS, ending, Counting)
    Name.compared = 0
    kinds = {Name(f"c{number}"): "number" for number in range(0, count, 2)}
    data = read_table(path, label="class", column_kinds=kinds)
    assert data.inputs.shape == (3, count)
    assert Name.compared < 30 * count


def test_columns_of_new_rows_are_looked_up_a_few_times():
    from hierlearn.datasets.tables.table import check_columns

    count = 3_000
    found, wanted = (tuple(Name(f"c{number}") for number in range(count)) for _ in range(2))
    Name.compared = 0
    check_columns(found, wanted, found)
    with pytest.raises(DataError, match="3,000 columns that no training row has"):
        check_columns(found, (), ())
    assert Name.compared < 10 * count


def test_two_columns_of_one_name_among_many(tmp_path):
    names = [f"c{number}" for number in range(50_000)]
    path = write(tmp_path, ",".join([*names, "c49999", "class"]) + "\n")
    with pytest.raises(DataError, match="two columns have the name 'c49999'"):
        read_table(path, label="class")


# ---------------------------------------------------------------------- damaged bytes


@pytest.mark.parametrize("text", ["a,b\0,class\n1,2,p\n", "a,b,class\n1,2,p\n1,2\0,q\n"])
@pytest.mark.parametrize("far", [0, 2000])
def test_a_nul_is_no_text(tmp_path, text, far):
    header, rest = text.split("\n", 1)
    filler = "7,7,p\n" * far
    with pytest.raises(DataError) as caught:
        read_table(write(tmp_path, f"{header}\n{filler}{rest}"), label="class")
    line = 1 if "\0" in header else 3 + far
    assert f"rows.csv, line {line}: a NUL byte, which no text holds" in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_still_called_so(tmp_path, encoding):
    path = tmp_path / "rows.csv"
    path.write_bytes("größe,class\n1,p\n2,q\n".encode(encoding))
    with pytest.raises(DataError, match="it looks like UTF-16"):
        read_table(path, label="class")


# ---------------------------------------------------------------------- odd arguments


@pytest.mark.parametrize("name", ["a" * 300, "b" * 5000, "c/" * 3000 + "d", "e\0"], ids=range(4))
@pytest.mark.parametrize("ending", ["", ".csv", ".parquet", ".json", ".arff", ".tar"])
def test_a_name_that_no_file_can_have(name, ending):
    from hierlearn.datasets import read_arff, read_images
    from hierlearn.lab.pages import write_report
    from hierlearn.lab.study import Study

    ways = [
        Hierarchy.read,
        lambda path: read_table(path, label="class"),
        read_arff,
        read_images,
        Study.open,
        write_report,
        lambda path: stream_table(path, label="class"),
    ]
    for way in ways:
        with pytest.raises(HierlearnError) as caught:
            way(name + ending)
        assert len(str(caught.value)) <= 600


@pytest.mark.parametrize("sep", ["", None, 3])
@pytest.mark.parametrize("name", ["x.csv", "x.txt", "x.json", "x.arff", "x.obo"])
def test_a_separator_is_a_text(tmp_path, sep, name):
    (tmp_path / name).write_text("a/b\n")
    with pytest.raises(HierarchyError, match="sep must be a non-empty text"):
        Hierarchy.read(tmp_path / name, sep=sep)


@pytest.mark.parametrize("option", [{"label_sep": 3}, {"label_sep": ""}, {"delimiter": 3}])
def test_separators_of_cells_are_texts(tmp_path, option):
    with pytest.raises(DataError, match=r"label_sep|delimiter must be one character"):
        read_table(write(tmp_path, CSV), label="class", **option)
