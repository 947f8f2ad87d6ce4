"""Mixed tables: read from files and frames, as inputs of a dataset."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

from hierlearn import Dataset, Hierarchy
from hierlearn.datasets import Table, describe, read_table, stream_table
from hierlearn.datasets.tables.stream import TableStream
from hierlearn.datasets.tables.table import ColumnWarning, table_from_frame
from hierlearn.errors import DataError
from mixed_rows import make_rows, write_csv

KINDS = {
    "title": "text",
    "price": "number",
    "weight": "number",
    "brand": "category",
    "day": "date:iso",
    "used": "boolean",
}


@pytest.fixture(scope="module")
def rows():
    return make_rows(60)


@pytest.fixture
def path(tmp_path, rows):
    return write_csv(tmp_path / "rows.csv", rows)


def read(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)
        return read_table(path, label="class", **options)


def test_every_column_is_read_by_its_kind(path, rows):
    with pytest.warns(ColumnWarning, match="column 'sku' looks like an id, since every value"):
        data = read_table(path, label="class")
    table = data.inputs
    assert data.kind == "table"
    assert table.kinds == KINDS
    assert data.feature_names == table.names
    assert table.ignored == {"sku": "looks like an id", "shop": "has one value"}
    assert table.shape == (60, 6)
    assert table.columns["title"].tolist() == [row["title"] for row in rows]
    expected = np.float32([row["weight"] or "nan" for row in rows])
    np.testing.assert_array_equal(table.columns["weight"], expected)
    assert table.columns["used"].tolist() == [float(row["used"] == "yes") for row in rows]
    days = np.array([row["day"] for row in rows], dtype="datetime64[s]")
    np.testing.assert_array_equal(table.columns["day"], days)
    np.testing.assert_array_equal(table.missing("brand"), [not row["brand"] for row in rows])


def test_what_is_ignored_and_chosen(path):
    table = read(path, ignore=["sku", "title"]).inputs
    assert table.summary() == (
        "2 numbers: price, weight; 1 category: brand; 1 date: day (iso); 1 boolean: used; "
        "ignored: sku, title, shop (has one value)"
    )
    named = read(path, features=["sku", "shop"]).inputs  # what is named is used
    assert named.kinds == {"sku": "category", "shop": "category"}
    both = read(path, features=["price"], text="title").inputs
    assert both.kinds == {"price": "number", "title": "text"}
    assert read(path, features=["price"], column_kinds={"price": "category"}).kind == "table"
    given = read(path, column_kinds={"price": "category", "sku": "text"}).inputs
    assert (given.kinds["price"], given.kinds["sku"]) == ("category", "text")


def test_numbers_alone_and_one_text_alone_stay_what_they_were(path, rows, tmp_path):
    numbers = read(path, features=["price", "weight"])
    assert numbers.kind == "numbers"
    expected = np.float32([[row["price"], row["weight"] or "nan"] for row in rows])
    np.testing.assert_array_equal(numbers.inputs, expected)
    assert numbers.inputs.dtype == np.float32
    assert read(path, text="title").inputs == [row["title"] for row in rows]
    alone = read(write_csv(tmp_path / "text.csv", rows, ("title", "shop", "class")))
    assert alone.kind == "texts"
    assert alone.inputs == [row["title"] for row in rows]
    assert alone.feature_names == ("title",)


def test_an_id_among_numbers_is_pointed_out(tmp_path):
    lines = [f"{row},{row % 7},S{row},a" for row in range(30)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["id,x,sku,y", *lines]) + "\n")
    with pytest.warns(ColumnWarning) as caught:
        data = read_table(path, label="y")
    assert [str(one.message).split(";")[0] for one in caught] == [
        "column 'id' looks like an id, and is used as a number",
        "column 'sku' looks like an id, since every value is different, and is not used",
    ]
    assert (data.kind, data.feature_names) == ("numbers", ("id", "x"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_table(path, label="y", ignore=["id", "sku"]).feature_names == ("x",)


def test_kinds_are_found_on_the_training_rows(tmp_path):
    """A word among the test rows does not make a category of numbers, but is an error."""
    lines = [f"{row},c{row % 2},train,a" for row in range(30)] + ["red,c0,test,a"] * 20
    path = tmp_path / "rows.csv"
    for held in ("later", "test"):
        path.write_text("\n".join(["x,c,part,y", *lines]).replace("test", held) + "\n")
        with pytest.raises(DataError, match="line 32, column 'x': 'red' is not a finite number"):
            read_table(path, label="y", split="part")
    data = read_table(path, label="y", split="part", column_kinds={"x": "category"})
    assert data.inputs.kinds == {"x": "category", "c": "category"}
    constant = path.read_text().replace("c1", "c0").replace("red,c0", "5,c1")
    path.write_text(constant)
    assert read_table(path, label="y", split="part").kind == "numbers"  # c is constant in training


def test_parquet_gives_the_table_of_csv(path, tmp_path):
    frame = pd.read_csv(path, parse_dates=["day"], keep_default_na=False)
    frame["weight"] = pd.to_numeric(frame["weight"])
    frame["used"] = frame["used"] == "yes"
    frame.to_parquet(tmp_path / "rows.parquet")
    found, expected = read(tmp_path / "rows.parquet"), read(path)
    assert found.inputs.kinds == expected.inputs.kinds
    assert found.digest() == expected.digest()
    frame["price"] = frame["price"].astype(str).astype("category")
    frame.to_parquet(tmp_path / "rows.parquet")
    assert read(tmp_path / "rows.parquet").inputs.kinds["price"] == "category"
    with pytest.raises(DataError, match=r"rows\.parquet is a mixed table of .*1 text.*; only numb"):
        stream_table(tmp_path / "rows.parquet", label="class")
    data = stream_table(tmp_path / "rows.parquet", label="class", features=["weight"])
    np.testing.assert_array_equal(np.asarray(data.inputs)[:, 0], found.inputs.columns["weight"])


def test_rows_are_taken_described_and_digested(path):
    data = read(path)
    taken = data.take([5, 3])
    for name in KINDS:
        expected = data.inputs.columns[name][[5, 3]]
        np.testing.assert_array_equal(taken.inputs.columns[name], expected)
    assert taken.inputs.kinds == KINDS
    assert data.take(np.arange(60) > 50).inputs.shape == (9, 6)
    assert data.digest() == read(path).digest() == pickle.loads(pickle.dumps(data)).digest()
    assert data.digest() != read(path, column_kinds={"brand": "text"}).digest()
    swapped = data.take([1, 0, *range(2, 60)])
    assert swapped.digest() != data.digest()
    summary = describe(data)["inputs"]
    assert summary["kind"] == "table"
    assert summary["columns"].startswith("2 numbers: price, weight; 1 category: brand; 1 text: ti")
    missing = sum(int(data.inputs.missing(name).sum()) for name in KINDS)
    assert missing > 0
    assert summary["missing_fraction"] == missing / 360


def test_new_rows_are_read_in_parts_by_their_kinds(path):
    expected = read(path).inputs
    stream = TableStream(path, features={name: KINDS[name] for name in list(KINDS)[::-1]}, cells=60)
    parts = [chunk.inputs for chunk in stream]
    assert [len(part) for part in parts] == [8] * 7 + [4]  # a power of 2, 60 cells at most
    for name in KINDS:
        found = np.concatenate([part.columns[name] for part in parts])
        np.testing.assert_array_equal(found, expected.columns[name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignore": ["nope"]}, "unknown column 'nope'"),
        ({"ignore": ["class"]}, "column 'class' is named twice, as label and as ignore"),
        ({"ignore": []}, "ignore names no column"),
        (
            {"ignore": ["sku"], "features": ["price"]},
            "ignore= leaves columns out of the inputs, bu",
        ),
        ({"ignore": ["sku"], "text": "title"}, "but text= names those; use one of them"),
        ({"column_kinds": {"brnd": "text"}}, "unknown column 'brnd'; did you mean 'brand'"),
        ({"column_kinds": {"brand": "word"}}, "column 'brand': unknown kind 'word'"),
        ({"column_kinds": {"class": "text"}}, "column_kinds names 'class', which is no input"),
        (
            {"text": "title", "column_kinds": {"brand": "text"}},
            "text names 'title' as the only inp",
        ),
        (
            {"text": "title", "features": ["price"], "column_kinds": {"title": "category"}},
            "column 'title' is named as text and as category; give it one kind",
        ),
        ({"column_kinds": {"brand": "number"}}, "column 'brand': '.*' is not a finite number"),
        ({"column_kinds": {"brand": "date"}}, "column 'brand': no known format fits its dates"),
        ({"column_kinds": {"day": "date:%d.%m.%Y"}}, r"'.*' is not a date of the form %d\.%m"),
        ({"column_kinds": {"brand": "boolean"}}, "line 2, column 'brand': .* is neither true nor"),
    ],
)
def test_wrong_choices_raise(path, options, message):
    with pytest.raises(DataError, match=message):
        read(path, **options)


def test_a_table_of_frames_has_the_kinds_of_its_types():
    frame = pd.DataFrame(
        {
            "n": [1, 2, 3],
            "f": [1.5, None, 2.0],
            "c": pd.Categorical([10, 20, 10]),
            "s": ["red", None, "blue"],
            "d": pd.to_datetime(["2024-01-01", None, "2024-01-02"]),
            "b": pd.array([True, None, False], dtype="boolean"),
            "o": [1, 2, "3"],
        }
    )
    table = table_from_frame(frame)
    kinds = ["number", "number", "category", "category", "date:iso", "boolean", "number"]
    assert list(table.kinds.values()) == kinds
    assert table.columns["c"].tolist() == ["10", "20", "10"]
    assert table.columns["s"].tolist() == ["red", "", "blue"]
    np.testing.assert_array_equal(table.columns["b"], np.float32([1, np.nan, 0]))
    np.testing.assert_array_equal(table.columns["f"], [1.5, np.nan, 2.0])
    assert table_from_frame(frame[["n", "f", "o"]]) is None
    pl = pytest.importorskip("polars")
    own = pl.DataFrame(
        {
            "n": [1, 2, 3],
            "f": [1.5, None, 2.0],
            "c": pl.Series(["10", "20", "10"], dtype=pl.Categorical),
            "s": ["red", None, "blue"],
            "d": [frame["d"][0].to_pydatetime(), None, frame["d"][2].to_pydatetime()],
            "b": [True, None, False],
            "o": ["1", "2", "3"],
        }
    )
    other = table_from_frame(own)
    assert other.kinds == table.kinds
    assert list(other.blocks()) == list(table.blocks())


def test_bad_frames_and_columns_raise():
    with pytest.raises(DataError, match=r"row 1 \(counted from 0\), column 'x': inf is not a fin"):
        table_from_frame(pd.DataFrame({"x": [1.0, np.inf], "s": ["a", "b"]}))
    with pytest.raises(DataError, match="unknown column 'z'; known: s"):
        table_from_frame(pd.DataFrame({"s": ["a", "b"]}), {"z": "text"})
    twice = pd.DataFrame([["a", "b"]], columns=["s", "s"])
    with pytest.raises(DataError, match="the table: two columns have the name 's'"):
        table_from_frame(twice)
    with pytest.raises(DataError, match=r"must have the same length, not {'a': 1, 'b': 2}"):
        Table({"a": np.ones(1), "b": np.ones(2)}, {"a": "number", "b": "number"})
    with pytest.raises(DataError, match=r"column 'a' \(1, 1\) must be \(N,\)"):
        Table({"a": np.ones((1, 1))}, {"a": "number"})
    with pytest.raises(DataError, match="column 'a' is of dtype <U1, which is no number"):
        Table({"a": np.array(["x"])}, {"a": "number"})
    with pytest.raises(DataError, match="at least one column"):
        Table({}, {})
    h = Hierarchy.from_paths(["a"])
    with pytest.raises(DataError, match="inputs have 1 rows but labels have 2"):
        Dataset(Table({"a": np.ones(1)}, {"a": "number"}), [["a"], ["a"]], h)


def test_a_category_keeps_its_zeros(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("zip,x,y\n01234,1,a\n1234,2,a\n,3,a\n")
    assert read_table(path, label="y").inputs[0, 0] == 1234
    table = read_table(path, label="y", column_kinds={"zip": "category"}).inputs
    assert table.columns["zip"].tolist() == ["01234", "1234", ""]


def test_dates_that_fit_two_formats_are_pointed_out(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("d,x,y\n01/02/2024,red,a\n03/04/2024,blue,a\n")
    with pytest.warns(ColumnWarning, match=r"dates as %m/%d/%Y or as %d/%m/%Y; the first is used"):
        table = read_table(path, label="y").inputs
    assert table.columns["d"][0] == np.datetime64("2024-01-02")
    table = read_table(path, label="y", column_kinds={"d": "date:%d/%m/%Y"}).inputs
    assert table.columns["d"][0] == np.datetime64("2024-02-01")
