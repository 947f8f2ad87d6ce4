"""Inputs and weights as they are given."""

import re

import numpy as np
import pytest

from hierlearn import HierarchicalClassifier, Hierarchy
from hierlearn.errors import DataError
from hierlearn.estimator.inputs import as_texts, parse_weights
from hierlearn.estimator.labels import LabelFormat, parse_labels


def test_texts_are_told_from_tables():
    assert as_texts(["a", "b"]) == ["a", "b"]
    assert as_texts(np.array(["a"])) == ["a"]
    assert as_texts(["a", None]) == ["a", None]  # TextPreprocessor names the row
    assert as_texts([[1.0], [2.0]]) is None
    assert as_texts(np.zeros(3)) is None
    assert as_texts(np.array([["a"], ["b"]])) == ["a", "b"]  # the one column of a frame
    assert as_texts(np.array([["a", "b"]])) is None
    assert as_texts(np.array([[1], [2]], dtype=object)) is None
    with pytest.raises(DataError, match="inputs are a single text; give a list of texts"):
        as_texts("a text")


def test_weights():
    assert parse_weights(None, 2).tolist() == [1, 1]
    assert parse_weights(3, 2).tolist() == [3, 3]
    for wrong, message in (
        ([1.0], "sample_weight (1,) must be (2,): one weight per row"),
        ([[1.0], [2.0]], "sample_weight (2, 1) must be (2,)"),
        ([1.0, -2.0], "row 1: sample_weight is -2.0, below zero"),
        ([0.0, 0.0], "sample_weight is zero for every row; give at least one row a weight"),
        ([1.0, np.nan], "Input sample_weight contains NaN"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            parse_weights(wrong, 2)


def test_rows_of_weight_0_are_left_out_and_equal_weights_are_none():
    h = Hierarchy.from_paths(["a", "b"])
    gather, form = HierarchicalClassifier()._gather, LabelFormat(h)
    rows, weights = gather(np.eye(3), parse_labels(["a", "b", "a"]), form, [2, 0, 2])
    assert rows.labels == [["a"], ["a"]]
    assert rows.inputs.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert weights is None
    assert gather(np.eye(2), parse_labels(["a", "b"]), form, [2, 1])[1].tolist() == [2, 1]
    with pytest.raises(DataError, match="inputs have 3 rows but labels have 1"):
        gather(np.eye(3), parse_labels(["a"]), form, None)
