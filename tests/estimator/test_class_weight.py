"""class_weight: a weight of 2 is every row of the class twice, whatever its level."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_sample_weight

from estimator.toy_data import LEAVES, blobs, classifier, solved
from hierlearn import HierarchicalClassifier, Hierarchy
from hierlearn.errors import HierlearnError, LabelError
from hierlearn.estimator.labels import LabelFormat, weigh_rows
from hierlearn.training.solvers import linear

X, GROUP = blobs(60, noise=2.5)
Y = LEAVES[GROUP]
H = Hierarchy.from_paths(sorted(LEAVES))
DAG = Hierarchy.from_edges([("a", "c"), ("b", "c"), ("c", "d"), ("b", "e"), ("e", "d")])


def unscaled(**changes):
    """All rows at once to the optimum, so that weights and repetitions must agree."""
    return solved(standardize=False, **changes)


def scores(model):
    """What the SVMs say of all rows; how steep a probability is, left-out rows decide."""
    head = model.pipeline_.network.heads["main"]
    return head.scores(torch.from_numpy(X).float()).numpy()


def row_weights(class_weight, names, hierarchy=H, weights=None):
    weights = np.ones(len(names)) if weights is None else np.asarray(weights, dtype=float)
    return weigh_rows(class_weight, names, LabelFormat(hierarchy), weights).tolist()


@pytest.mark.parametrize(
    ("class_weight", "twice"),
    [
        ({"plant/oak": 2}, ["plant/oak"]),
        ({"animal/dog": 2.0}, ["animal/dog/pug", "animal/dog/bulldog"]),
        ({"animal": 2, "animal/dog/pug": 1}, ["animal/dog/bulldog", "animal/cat"]),
    ],
)
def test_a_weight_is_a_repetition(class_weight, twice, monkeypatch):
    monkeypatch.setitem(linear.fit_head.__kwdefaults__, "tolerance", 1e-4)
    again = np.isin(Y, twice)
    expected = scores(unscaled().fit(np.r_[X, X[again]], np.r_[Y, Y[again]]))
    found = scores(unscaled(class_weight=class_weight).fit(X, Y))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert np.abs(found - scores(unscaled().fit(X, Y))).max() > 0.1  # it does much


def test_balanced_is_the_rule_of_scikit_learn():
    rows = np.flatnonzero((GROUP != 1) | (np.arange(60) % 2 == 0))
    names = [[label] for label in Y[rows]]
    expected = compute_sample_weight("balanced", Y[rows])
    np.testing.assert_allclose(row_weights("balanced", names), expected)
    # A sample weight counts rows: 2 is twice.
    weights = np.where(GROUP[rows] == 0, 2.0, 1.0)
    repeated = np.repeat(np.arange(len(rows)), weights.astype(int))
    of_repeated = compute_sample_weight("balanced", Y[rows][repeated])
    found = row_weights("balanced", names, weights=weights)
    first = np.searchsorted(repeated, np.arange(len(rows)))
    np.testing.assert_allclose(np.asarray(found) / weights, of_repeated[first])


def test_balanced_raises_the_recall_of_a_rare_class():
    rows = np.flatnonzero((GROUP != 3) | (np.arange(60) % 20 == 3))
    plain, balanced = (
        unscaled(class_weight=one).fit(X[rows], Y[rows]) for one in (None, "balanced")
    )
    oak = Y == "plant/oak"
    column = list(plain.classes_).index("plant/oak")
    means = [one.predict_proba(X[oak])[:, column].mean() for one in (plain, balanced)]
    assert means[1] > means[0] + 0.05


def test_class_weight_times_sample_weight():
    weights = np.linspace(0.5, 2, 60)
    factor = np.where(Y == "plant/oak", 3.0, 1.0)
    expected = unscaled().fit(X, Y, sample_weight=weights * factor).predict_proba(X)
    found = unscaled(class_weight={"oak": 3}).fit(X, Y, H, sample_weight=weights).predict_proba(X)
    np.testing.assert_array_equal(found, expected)
    # Rows of a class of weight 0 are left out.
    without = unscaled(class_weight={"plant/oak": 0}).fit(X, Y, H).predict_proba(X)
    keep = Y != "plant/oak"
    np.testing.assert_array_equal(without, unscaled().fit(X[keep], Y[keep], H).predict_proba(X))


def test_weights_of_rows():
    weights = {"animal": 2, "animal/dog": 3, "plant/oak": 5}
    rows = [["animal/dog/pug"], ["animal/cat"], ["animal"], ["plant/fern"], [], ["oak", "cat"]]
    assert row_weights(weights, rows) == [3, 2, 2, 1, 1, 3.5]
    # The nearest class of a DAG is the deepest; the mean of two that are as deep.
    assert row_weights({"b": 2, "c": 4}, [["d"], ["c"], ["e"]], DAG) == [3 * 1.0 + 1, 4, 2]
    assert row_weights({"c": 4, "e": 2}, [["d"]], DAG) == [3]


def test_numbers_name_classes_of_flat_labels(tmp_path):
    weighted = unscaled(class_weight={0: 3, 4: 0.5}).fit(X, GROUP)
    factor = np.select([GROUP == 0, GROUP == 4], [3.0, 0.5], 1.0)
    expected = unscaled().fit(X, GROUP, sample_weight=factor).predict_proba(X)
    np.testing.assert_array_equal(weighted.predict_proba(X), expected)
    weighted.save(tmp_path / "m")
    loaded = HierarchicalClassifier.load(tmp_path / "m")  # JSON has strings for keys
    np.testing.assert_array_equal(loaded.fit(X, GROUP).predict_proba(X), expected)


def test_partial_fit_takes_a_mapping():
    plain, weighted = (
        classifier(recipe="hcl", class_weight=one).partial_fit(X, Y) for one in (None, {"plant": 9})
    )
    plant = plain.hierarchy_.index("plant")
    found, expected = (one.predict_node_proba(X)[:, plant] for one in (weighted, plain))
    assert found.mean() > expected.mean()
    with pytest.raises(HierlearnError, match="class_weight='balanced' needs all rows at once"):
        classifier(class_weight="balanced").partial_fit(X, Y)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("auto", "class_weight must be 'balanced', a mapping from classes to weights, or None, no"),
        ({"plant/ok": 2}, "class_weight: unknown label 'plant/ok'; did you mean 'plant/oak'"),
        ({7: 2}, "class_weight: the label 7 is no class of"),
        ({"plant": -1}, "class_weight of 'plant' must be at least 0, not -1"),
        ({"plant": "2x"}, "class_weight of 'plant' must be at least 0, not '2x'"),
    ],
)
def test_what_raises(class_weight, message):
    kind = LabelError if "label" in message else HierlearnError
    with pytest.raises(kind, match=message):
        unscaled(class_weight=class_weight).fit(X, Y)
