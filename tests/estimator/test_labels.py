"""Labels as they are given: what is read, what comes back, what is refused."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array
from sklearn.exceptions import DataConversionWarning

from hierlearn import Hierarchy, LabelSpace
from hierlearn.errors import LabelError
from hierlearn.estimator.labels import LabelFormat, parse_labels


@pytest.mark.parametrize(
    ("y", "shape", "rows"),
    [
        (["a/b", None, "c", ""], "one", [["a/b"], [], ["c"], []]),
        (np.array(["a", "b"]), "one", [["a"], ["b"]]),
        (np.array(["a", np.nan], dtype=object), "one", [["a"], []]),
        (pd.Series(["a", None]), "one", [["a"], []]),
        (pd.Series(["a", "b"], dtype="category"), "one", [["a"], ["b"]]),
        (pd.Series([1, pd.NA], dtype="Int64"), "one", [[1], []]),
        (pl.Series(["a", None]), "one", [["a"], []]),
        (np.array([3, 4]), "one", [[3], [4]]),
        ([True, False], "one", [[True], [False]]),
        ([["a", "b"], [], ["c", None], None], "levels", [["a/b"], [], ["c"], []]),
        ([["a", ""], ("b", "c"), np.array(["d"])], "levels", [["a"], ["b/c"], ["d"]]),
        (np.array([["a", "b"], ["c"]], dtype=object), "levels", [["a/b"], ["c"]]),
        (pl.Series([["a", "b"], ["c"]]), "levels", [["a/b"], ["c"]]),
        ([[1, 2], [3, float("nan")]], "levels", [["1/2"], ["3"]]),
        ([{"b", "a"}, "c", None, set()], "several", [["a", "b"], ["c"], [], []]),
        ([{2, 1}, frozenset({3})], "several", [[1, 2], [3]]),
        ([["a/b", "c"], [], ["c"], None], "several", [["a/b", "c"], [], ["c"], []]),
        ([[["a", "b"], ["c"]], [["c"]], []], "several", [["a/b", "c"], ["c"], []]),
        (np.array([["a", "b"], ["c", None]], dtype=object), "levels", [["a/b"], ["c"]]),
        (np.array([[1, 2], [3, 4]]), "levels", [["1/2"], ["3/4"]]),
        (pd.DataFrame({"x": ["a", None], "y": [1.0, None]}), "levels", [["a/1"], []]),
        (pl.DataFrame({"x": ["a", "b"], "y": [1, None]}), "levels", [["a/1"], ["b"]]),
    ],
)
def test_forms(y, shape, rows):
    given = parse_labels(y)
    assert given.shape == shape
    assert given.rows == rows


def test_one_column_is_one_label_with_scikit_learns_warning():
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        given = parse_labels(np.array([["a"], ["b"]]))
    assert given.shape == "one"


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed, but the target y is None; give a label, or several"),
        ("a/b", "labels are a list with one entry per row, not one string 'a/b'"),
        (csr_array(np.eye(2)), "labels are a sparse matrix; give a set of labels per row"),
        (
            np.zeros((2, 2, 2)),
            "y should be a 1d array, or (N, L) with one column per level: (2, 2, 2)",
        ),
        (np.eye(3, dtype=int), "y (3, 3) holds zeros and ones only: an indicator matrix and one"),
        (np.eye(2, dtype=bool), "y (2, 2) holds zeros and ones only"),
        (["a", 5], "row 1 has the label 5, but row 0 has 'a'; give strings or numbers, not both"),
        (["a", b"b"], "row 1: a label is a string or a number, not b'b' (bytes)"),
        ([0.5, 1.5], "Unknown label type: continuous"),
        (np.array([1.0, np.nan]), "Input y contains NaN."),
        (
            np.array([["a/b", "c"], ["d", "e"]]),
            "row 0: class name 'a/b' holds the separator '/'; choose another with sep= (a row "
            "has one name per level; for several labels give a set of paths per row)",
        ),
        ([{"a"}, {None}], "row 1: a label is a string or a number, not None (NoneType)"),
        ([["a", "b"], "c"], "row 1 is 'c', but other rows are lists: a list is one path by levels"),
        (
            [["a", "b"], {"c"}],
            "row 0 is a list, ['a', 'b'], but other rows are sets: a list is one",
        ),
        ([[1, 0], [0, 1]], "y (2, 2) holds zeros and ones only: an indicator matrix and one"),
    ],
)
def test_refused(y, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        LabelFormat.from_labels(parse_labels(y), None, "/")


def test_nothing_to_infer_from():
    with pytest.raises(LabelError, match="none of the 2 rows has a label, so no hierarchy can be"):
        LabelFormat.from_labels(parse_labels([None, None]), None, "/")


def test_numbers_of_a_hierarchy():
    h = Hierarchy.from_paths(["a/b", "c"])
    form = LabelFormat.from_labels(parse_labels([0, 2]), h, "/")
    assert form.names(parse_labels([2.0, 1])) == [["a/b"], ["c"]]
    assert form.answer([2, 0]).tolist() == [2, 0]
    for wrong in ([True], [{1.5}]):
        with pytest.raises(LabelError, match=r"row 0: (True|1.5) is no class number"):
            form.names(parse_labels(wrong))


def test_answers_come_back_in_form():
    one = LabelFormat.from_labels(parse_labels(np.array([5, 3])), None, "/")
    assert one.answer([0, 1]).tolist() == [3, 5]
    assert one.answer([0, -1]).tolist() == [3, None]
    several = LabelFormat.from_labels(parse_labels([["b", "a/x"]]), None, "/")
    assert several.hierarchy.names == ("a", "b", "a/x")
    assert several.answer([2, -1]) == [["a/x"], []]
    assert several.answer_sets([[1, 2], []]) == [["b", "a/x"], []]
    levels = LabelFormat.from_labels(
        parse_labels(np.array([["a", 1], ["b", None]], dtype=object)), None, "/"
    )
    assert levels.answer([2, 1, -1]).tolist() == [["a", 1], ["b", None], [None, None]]


@pytest.mark.parametrize(
    "y",
    [
        ["a/b", "c"],
        [2, 10, -1],
        [True, False],
        [["a"], ["b", "c"]],
        [{"a"}, {"b", "c"}],
        np.array([["a", 1], ["a", 2]], dtype=object),
    ],
)
def test_a_form_survives_json(y):
    import json

    form = LabelFormat.from_labels(parse_labels(y), None, "/")
    again = LabelFormat.from_dict(json.loads(json.dumps(form.to_dict())), form.hierarchy)
    assert again == form
    space = LabelSpace(form.hierarchy)
    classes, numbers = form.classes(space)
    assert np.array_equal(again.classes(space)[0], classes)
    several = form.shape == "several"
    assert sorted(numbers) == (
        list(range(len(form.hierarchy))) if several else list(space.terminals)
    )


def test_rows_after_the_training_are_read_as_the_trainings_were():
    flat = [["red", "round"], ["blue"]]
    assert parse_labels(flat).rows == [["red/round"], ["blue"]]
    assert parse_labels(flat, shape="several").rows == flat
    assert parse_labels(flat, shape="levels").rows == [["red/round"], ["blue"]]


def test_a_list_that_is_no_path_of_the_hierarchy_may_have_meant_several_labels():
    h = Hierarchy.from_paths(["animal/dog", "plant/oak"])
    by_levels = LabelFormat.from_labels(parse_labels([["animal", "dog"], ["plant"]]), h, "/")
    assert by_levels.shape == "levels"
    message = (
        "row 1: the list ['dog', 'oak'] is one path by levels, and 'dog/oak' is no class of the "
        "hierarchy; for several labels give a set, {'dog', 'oak'}"
    )
    with pytest.raises(LabelError, match=re.escape(message)):
        LabelFormat.from_labels(parse_labels([["plant"], ["dog", "oak"]]), h, "/")
    with pytest.raises(LabelError, match=r"row 0: the list \[0, 2\] is one path"):
        LabelFormat.from_labels(parse_labels([[0, 2]]), h, "/")


def test_labels_that_an_inferred_hierarchy_lacks_widen_it():
    form = LabelFormat.from_labels(parse_labels(["a/b", "c"]), None, "/")
    assert form.extended(parse_labels(["a/b"]), None).hierarchy is form.hierarchy
    assert "a/d/e" in form.extended(parse_labels(["a/d/e"]), None).hierarchy
    named = replace(form, hierarchy=form.hierarchy.with_titles({"a/b": "B"}))
    assert named.extended(parse_labels(["a/d/e"]), None).hierarchy.title("a/b") == "B"
    given = LabelFormat.from_labels(parse_labels(["a/b"]), form.hierarchy, "/")
    assert given.extended(parse_labels(["a/b"]), None).hierarchy is form.hierarchy
