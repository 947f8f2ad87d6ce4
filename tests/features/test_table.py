"""Preprocessing of mixed tables, against pandas and the ColumnTransformer of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import issparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from features.saved_state import assert_same_sparse, save_and_load
from hierlearn import Dataset, Hierarchy
from hierlearn.datasets import Table
from hierlearn.datasets.tables.table import table_from_frame
from hierlearn.errors import DataError, HierlearnError
from hierlearn.features import (
    PiecewiseLinearPreprocessor,
    TablePreprocessor,
    TextPreprocessor,
    from_state,
    make_preprocessor,
)
from hierlearn.features.table import Categories, DateParts
from tolerances import FLOAT32

COLORS = ["red", "green", "blue", "teal", ""]


def make_frame(rows=200, seed=0, *, text=True):
    """Two numbers, a category, a boolean, a date with times, and perhaps a text."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.normal(5, 3, rows),
            "b": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(-1, 0.1, rows)),
            "color": rng.choice(COLORS, rows, p=[0.4, 0.3, 0.2, 0.05, 0.05]),
            "flag": rng.random(rows) < 0.5,
            "day": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 30000, rows), "h"),
        }
    )
    if text:
        frame["note"] = [" ".join(rng.choice(list("abcdefghij"), 5)) for _ in range(rows)]
    return frame


def make_table(frame):
    kinds = {"color": "category", **({"note": "text"} if "note" in frame else {})}
    table = table_from_frame(frame, kinds)
    return Table({name: column.copy() for name, column in table.columns.items()}, table.kinds)


def dense(rows):
    return rows.toarray() if issparse(rows) else rows


def test_a_table_without_texts_is_that_of_column_transformer():
    train, new = make_frame(text=False), make_frame(50, seed=1, text=False)
    new.loc[3, "color"] = "never seen"
    step = TablePreprocessor(min_category_rows=15).fit(make_table(train))
    transformer = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]),
            ("flag", "passthrough", ["flag"]),
            ("missing", MissingIndicator(), ["b"]),
            (
                "color",
                OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=15),
                ["color"],
            ),
        ],
        sparse_threshold=0,
    ).fit(train)
    found = step.transform(new)
    assert step.produces == "numbers"
    assert found.dtype == np.float32
    is_date = np.zeros(found.shape[1], dtype=bool)
    is_date[3:11] = True  # behind two numbers and a boolean
    np.testing.assert_allclose(found[:, ~is_date], transformer.transform(new), *FLOAT32)
    assert found[3, -1] == 1  # behind blue, green and red


def test_categories_are_the_dummies_of_pandas():
    values = make_frame()["color"].to_numpy(dtype=object)
    found = Categories.fit(values, most=100, least=1)
    expected = pd.get_dummies(pd.Series(values), dtype=np.float32)
    assert found.kept == list(expected)
    assert not found.other
    np.testing.assert_array_equal(found.transform(values).toarray(), expected)
    assert found.transform(np.array(["new"], dtype=object)).nnz == 0  # no column to say so


def test_rare_categories_beyond_the_limit_share_a_column():
    values = np.array(list("aaaabbbccdd"), dtype=object)
    found = Categories.fit(values, most=2, least=2)
    assert (found.kept, found.other, found.columns) == (["a", "b"], True, 3)
    rows = found.transform(np.array(["a", "c", "z", ""], dtype=object)).toarray()
    np.testing.assert_array_equal(rows, [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]])
    assert Categories.fit(values, most=3, least=2).kept == ["a", "b", "c"]  # by name among equals


def test_dates_are_those_of_pandas():
    days = make_frame(300)["day"]
    values = days.to_numpy().astype("datetime64[s]")
    found = DateParts.fit(values)
    angles = [
        (days.dt.month - 1) / 12,
        days.dt.day_of_week / 7,
        (days.dt.hour + days.dt.minute / 60) / 24,
    ]
    expected = [days.dt.year, (days.dt.normalize() - pd.Timestamp("2000-01-01")).dt.days]
    expected = [(one - one.mean()) / one.std(ddof=0) for one in expected]
    for one in angles:
        expected += [np.sin(2 * np.pi * one), np.cos(2 * np.pi * one)]
    np.testing.assert_allclose(found.transform(values), np.stack(expected, axis=1), *FLOAT32)
    midnight = values.astype("datetime64[D]").astype("datetime64[s]")
    midnight[5] = np.datetime64("NaT")
    without = DateParts.fit(midnight)
    assert without.columns == 6
    assert not without.transform(midnight)[5].any()
    old = np.array(["1969-07-20T20:17:40"], dtype="datetime64[s]")  # before 1970
    assert found.transform(old)[0, 4] == pytest.approx(np.sin(2 * np.pi * 6 / 7), abs=1e-6)


def test_texts_make_the_rows_sparse_and_are_those_of_the_text_step():
    train, new = make_table(make_frame()), make_table(make_frame(50, seed=1))
    step = TablePreprocessor(ngrams=2).fit(train)
    found = step.transform(new)
    assert step.produces == "sparse"
    assert issparse(found)
    assert found.format == "csr"
    assert found.dtype == np.float32
    words = TextPreprocessor(ngrams=2).fit(train.columns["note"].tolist())
    width = words.columns
    assert_same_sparse(found[:, -width:].tocsr(), words.transform(new.columns["note"].tolist()))
    numbers = np.stack([train.columns[name] for name in "ab"], axis=1)
    bins = PiecewiseLinearPreprocessor().fit(numbers)
    np.testing.assert_array_equal(
        step.transform(train)[:, : bins.columns].toarray(), bins.transform(numbers)
    )
    assert found.shape[1] == step.columns


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("numbers", [None, "numeric", "piecewise-linear"])
def test_what_is_restored_transforms_bit_for_bit(text, numbers):
    table = make_table(make_frame(text=text))
    step = TablePreprocessor(numbers=numbers).fit(table)
    again = save_and_load(step)
    new = make_table(make_frame(40, seed=2, text=text))
    a, b = step.transform(new), again.transform(new)
    np.testing.assert_array_equal(dense(a), dense(b))
    assert again.columns == step.columns
    assert again.summary() == step.summary() != ""
    assert again.input_columns == step.input_columns == len(table.names)
    assert again.produces == step.produces
    # Rows do not affect each other.
    np.testing.assert_array_equal(dense(step.transform(new[7:9])), dense(a)[7:9])


def test_texts_can_be_left_out():
    frame = make_frame()
    step = TablePreprocessor(texts=False).fit(make_table(frame))
    plain = frame.drop(columns=[name for name, kind in step.kinds.items() if kind == "text"])
    assert len(plain.columns) < len(frame.columns)
    assert step.produces == "numbers"
    expected = TablePreprocessor().fit(make_table(plain)).transform(plain)
    assert np.array_equal(step.transform(frame), expected)
    assert np.array_equal(save_and_load(step).transform(frame), expected)


def test_columns_are_found_by_name_and_frames_are_read():
    frame = make_frame(text=False)
    step = TablePreprocessor().fit(make_table(frame))
    expected = step.transform(make_table(frame))
    turned = frame[frame.columns[::-1]]
    np.testing.assert_array_equal(step.transform(turned), expected)
    np.testing.assert_array_equal(step.transform(make_table(turned)), expected)
    as_texts = frame.assign(a=frame["a"].map(repr), day=frame["day"].astype(str))
    np.testing.assert_array_equal(step.transform(as_texts), expected)


def test_wrong_columns_raise_and_are_named():
    frame = make_frame(text=False)
    step = TablePreprocessor().fit(make_table(frame))
    with pytest.raises(DataError, match=r"lacks 2 columns of the training rows: 'a', 'day'$"):
        step.transform(frame.drop(columns=["a", "day"]))
    with pytest.raises(DataError, match="has 1 column that no training row has: 'extra'; leave"):
        step.transform(frame.assign(extra=1))
    with pytest.raises(DataError, match=r"lacks 1 column of .*: 'a'; it also has 'A', which no"):
        step.transform(frame.rename(columns={"a": "A"}))
    with pytest.raises(DataError, match="column 'a': 'red' is not a finite number"):
        step.transform(frame.assign(a="red"))
    with pytest.raises(DataError, match="reads a table with the columns a, b, color, flag, day, n"):
        step.transform(np.ones((2, 5)))
    other = table_from_frame(frame.astype({"a": str}), {"a": "category"})
    with pytest.raises(DataError, match="column 'a' is a category here, but a number in the train"):
        step.transform(other)
    bad = make_table(frame)
    bad.columns["a"][4] = np.inf
    with pytest.raises(DataError, match=r"row 4 \(counted from 0\), column 'a': inf is not a fini"):
        step.transform(bad)


def test_values_that_were_never_missing_are_found():
    frame = make_frame(text=True)
    step = TablePreprocessor().fit(make_table(frame))
    table = make_table(frame)
    assert step.newly_missing(table) == {}  # b and color are missing in training too
    table.columns["note"][0] = ""
    table.columns["day"][5] = np.datetime64("NaT")
    table.columns["a"][6] = table.columns["flag"][2] = np.nan
    names = [*step.kinds]
    found = {names[column]: rows.tolist() for column, rows in step.newly_missing(table).items()}
    assert found == {"a": [6], "flag": [2], "day": [5], "note": [0]}
    whole = make_frame(text=False)
    whole["color"] = "red"
    whole.loc[:99, "color"] = "blue"
    step = TablePreprocessor().fit(make_table(whole))
    whole.loc[9, "color"] = ""
    assert step.newly_missing(make_table(whole)) == {2: [9]}


def test_many_categories_make_the_rows_sparse(monkeypatch):
    monkeypatch.setattr("hierlearn.features.table.DENSE", 3)
    table = make_table(make_frame(text=False))
    data = Dataset(table, [["a"]] * len(table), Hierarchy.from_paths(["a"]))
    step = TablePreprocessor().fit(table)
    assert step.produces == TablePreprocessor.produces_for(data) == "sparse"
    assert TablePreprocessor.produces_for(data, max_categories=2) == "numbers"
    few = TablePreprocessor(max_categories=2, numbers="piecewise-linear").fit_transform(table)
    many = TablePreprocessor(numbers="piecewise-linear").fit_transform(table)
    np.testing.assert_array_equal(many.toarray()[:, :-5], few[:, :-3])


def test_options_are_checked_and_passed_on():
    table = make_table(make_frame())
    data = Dataset(table, [["a"]] * len(table), Hierarchy.from_paths(["a"]))
    step = make_preprocessor(None, data, ngrams=2, standardize=False)
    assert (step.text_options, step.standardize) == ({"ngrams": 2}, False)
    plain = step.fit(table).transform(table)
    np.testing.assert_allclose(plain.toarray()[:, 0], table.columns["a"], *FLOAT32)
    with pytest.raises(HierlearnError, match="unknown step of numbers 'text'"):
        TablePreprocessor(numbers="text")
    with pytest.raises(HierlearnError, match="max_categories must be an integer from 1"):
        TablePreprocessor(max_categories=0)
    with pytest.raises(HierlearnError, match="ngrams must be an integer"):
        TablePreprocessor(ngrams=0)
    with pytest.raises(HierlearnError, match="unknown option of preprocessing 'table' 'bins'"):
        make_preprocessor("table", data, bins=3)


def test_bad_training_rows_raise():
    with pytest.raises(DataError, match="cannot fit on 0 rows"):
        TablePreprocessor().fit(make_table(make_frame())[:0])
    with pytest.raises(DataError, match="inputs are ndarray, not a Table; read a file with read"):
        TablePreprocessor().fit(np.ones((2, 2)))
    table = Table({"t": np.array(["?", "!"], dtype=object)}, {"t": "text"})
    with pytest.raises(DataError, match="column 't': no word"):
        TablePreprocessor().fit(table)


@pytest.mark.parametrize("key", ["kinds", "parts", "missing", "order", "numbers"])
def test_a_damaged_state_raises(key):
    state, arrays = TablePreprocessor().fit(make_table(make_frame())).state()
    with pytest.raises(DataError, match=f"the stored preprocessor is damaged: it lacks '{key}'"):
        from_state({name: value for name, value in state.items() if name != key}, arrays)
    with pytest.raises(DataError, match="the stored preprocessor is damaged"):
        from_state({**state, "parts": state["parts"][:-1]}, arrays)
    with pytest.raises(DataError, match="the stored preprocessor is damaged"):
        from_state(state, {})
