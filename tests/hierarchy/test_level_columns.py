"""Labels with one column per level: frames and arrays, wherever labels are read."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from hierlearn import Hierarchy, Labels, join_levels
from hierlearn.errors import LabelError

H = Hierarchy.from_paths(["animal/dog/pug", "animal/cat", "plant"])
ROWS = [["animal", "dog", "pug"], ["animal", "cat", None], ["plant", None, None], [None] * 3]
PATHS = ["animal/dog/pug", "animal/cat", "plant", None]
TABLES = {
    "array": np.array(ROWS, dtype=object),
    "pandas": pd.DataFrame(ROWS, columns=["kingdom", "family", "breed"]),
    "polars": pl.DataFrame(ROWS, schema=["kingdom", "family", "breed"], orient="row"),
}
each_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


@each_table
def test_tables_are_paths(table):
    assert join_levels(table).tolist() == PATHS
    expected = H.encode(PATHS)
    assert H.encode(table).equal(expected)
    assert (H.encode(table, sparse=True).toarray() == expected.numpy()).all()
    assert Labels(table, H).targets().equal(expected)


def test_one_column_holds_labels_and_lists_hold_several():
    assert H.encode(pd.DataFrame({"label": PATHS[:3]})).equal(H.encode(PATHS[:3]))
    assert H.encode(np.array([["pug"], ["cat"]])).equal(H.encode(["pug", "cat"]))
    assert H.encode([["pug", "cat"]]).sum() == 4  # animal, dog, pug, cat


def test_numbers_are_names_and_a_frame_with_gaps_holds_floats():
    h = Hierarchy.from_paths(["1/12", "1/13", "2"])
    frame = pd.DataFrame({"top": [1, 1, 2], "below": [12, 13, None]})  # the gap makes 12.0
    assert join_levels(frame).tolist() == ["1/12", "1/13", "2"]
    assert h.encode(frame).equal(h.encode(["1/12", "1/13", "2"]))


def test_separator_and_type():
    assert join_levels([["a", "b"], ["c", None]], sep=" > ").tolist() == ["a > b", "c"]
    assert join_levels([["a"]]).dtype.kind == "U"
    assert join_levels([["a"], [None]]).dtype == object


def test_what_tables_raise():
    wrong = pd.DataFrame({"top": ["animal", "plant"], "below": ["cat", " "]})
    for call in (H.encode, lambda y: Labels(y, H), join_levels):
        with pytest.raises(
            LabelError, match=r"row 1 of labels, one column per level: a class name"
        ):
            call(wrong)
    with pytest.raises(LabelError, match=r"row 0: unknown label 'animal/wolf'"):
        H.encode(pd.DataFrame({"top": ["animal"], "below": ["wolf"]}))
    with pytest.raises(LabelError, match=r"one column per level, but its shape is \(2,\)"):
        join_levels(np.array(["a", "b"]))
