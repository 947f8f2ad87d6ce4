"""Rows from which there is hardly anything to learn: said, or refused where there is nothing."""

import warnings

import numpy as np
import pytest

from hierlearn import HierarchicalClassifier, Hierarchy
from hierlearn.errors import DataWarning, HierarchyError, HierlearnError

X = np.random.default_rng(0).normal(size=(120, 3))
FAST = {"recipe": "linear", "random_state": 0}


def fit(X, y, **options):
    return HierarchicalClassifier(**FAST, **options).fit(X, y)


def test_labels_of_one_row_each_are_doubted():
    y = [f"a sentence about the number {row}" for row in range(115)] + ["often"] * 5
    message = (
        r"115 of 116 labels have a single training row, as free text and ids do; check that these "
        r"are the labels \(--label on the command line\)"
    )
    with pytest.warns(DataWarning, match=message):
        fit(X, y)


@pytest.mark.parametrize(
    "y",
    [
        [f"c{row // 2}" for row in range(120)],  # two rows each
        [f"c{row % 70}" for row in range(120)],  # twenty with one row
        [f"c{min(row, 40)}" for row in range(120)],  # forty rare ones
    ],
)
def test_rare_classes_are_not(y):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        fit(X, y)


def test_a_single_class_is_said():
    with pytest.warns(DataWarning, match="all training rows have the label 'a/b', so every answer"):
        clf = fit(X, ["a/b"] * 120)
    assert set(clf.predict(X)) == {"a/b"}


@pytest.mark.parametrize(
    ("blank", "have"), [(1, "1 of 120 training rows has"), (6, "6 of 120 tra")]
)
def test_few_rows_without_a_label_are_doubted(blank, have):
    y = [set()] * blank + [{"a"}, {"b"}] * 60
    with pytest.warns(DataWarning, match=f"{have}.* no label, which says that no class applies"):
        fit(X, y[:120])
    with warnings.catch_warnings():  # many are meant, and unknown labels change nothing
        warnings.simplefilter("error", DataWarning)
        fit(X, [set()] * 30 + [{"a"}, {"b"}] * 45)
        fit(X, y[:120], unlabeled_descendants="ignore")


def test_a_quantity_as_label_is_doubted():
    with pytest.warns(DataWarning, match=r"labels are numbers with decimals, such as '0\.5', and"):
        fit(X, ["0.5", "1.5", "2.0"] * 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        fit(X, ["1", "2", "31-33"] * 40)
        fit(X, ["1.1", "1.1.2", "a.5"] * 40)


def test_inputs_without_any_value():
    y = ["a", "b"] * 60
    with pytest.raises(HierlearnError, match="no column has a value in any training row"):
        fit(np.full((120, 3), np.nan), y)
    part = X.copy()
    part[:, 1] = np.nan
    with pytest.warns(DataWarning, match="column 1 has no value in any training row"):
        fit(part, y)


def test_a_mapping_is_no_list_of_paths():
    message = (
        "paths must be a list of paths, not a mapping of 1 key; a nested mapping is for from_ne"
    )
    with pytest.raises(HierarchyError, match=message):
        Hierarchy.from_paths({"a": "b"})
