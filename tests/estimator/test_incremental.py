"""partial_fit on new rows: what continues, what is fixed, what is refused."""

import pickle

import numpy as np
import pytest
import torch

from estimator.toy_data import LEAVES, blobs, classifier
from hierlearn import Hierarchy
from hierlearn.errors import DataError, HierlearnError, LabelError
from hierlearn.estimator.incremental import IncrementalState


def last_weight(fitted):
    return fitted.pipeline_.network.heads["main"].linear.weight.detach().clone()


def test_partial_fit_continues_training():
    X, group = blobs()
    y = LEAVES[group]
    fitted = classifier()
    for begin in range(0, 150, 50):
        for _ in range(10):
            fitted.partial_fit(X[begin : begin + 50], y[begin : begin + 50], classes=set(LEAVES))
    assert fitted.score(X, y) > 0.95
    assert [record["epoch"] for record in fitted.history_] == list(range(1, 31))
    more = pickle.loads(pickle.dumps(fitted)).partial_fit(X, y)
    assert np.array_equal(more.predict_proba(X), fitted.partial_fit(X, y).predict_proba(X))
    with pytest.raises(LabelError, match="row 0: unknown label 'animal/cow'"):
        fitted.partial_fit(X[:1], ["animal/cow"])
    with pytest.raises(HierlearnError, match="the hierarchy is fixed from the first call on"):
        fitted.partial_fit(X, y, hierarchy=Hierarchy.from_paths(["a"]))
    with pytest.raises(DataError, match=r"row 0 \(.*\), column 1: .* missing"):
        fitted.partial_fit([[0.0, np.nan, 0.0, 0.0]], y[:1])


def test_partial_fit_of_numbers_and_inner_classes():
    X, group = blobs()
    numbers = classifier().partial_fit(X[group < 3], group[group < 3], classes=range(5))
    assert numbers.classes_.tolist() == [0, 1, 2, 3, 4]
    for _ in range(20):
        numbers.partial_fit(X, group)
    assert numbers.score(X, group) > 0.95
    with pytest.raises(LabelError, match="row 1: the label 9 is none of the 5 classes"):
        numbers.partial_fit(X[:2], [0, 9])
    # No row of the first call ends at "a"; it is named among the classes.
    y = np.array(["a/b", "a/c", "d", "a", "a/c"])[group]
    first = group != 3
    inner = classifier().partial_fit(X[first], y[first], classes=["a", "a/b", "a/c", "d"])
    for _ in range(30):
        inner.partial_fit(X, y)
    assert inner.score(X, y) > 0.95


def test_the_optimizer_continues_and_every_pass_shuffles_again():
    X, group = blobs()
    fitted = classifier(recipe="hcl", epochs=2).fit(X, LEAVES[group])
    steps = fitted._incremental.optimizer["0.step"].clone()
    fitted.partial_fit(X, LEAVES[group])
    assert fitted._incremental.optimizer["0.step"] == steps + 5
    # Without its state the first step of Adam is larger.
    kept, lost = (pickle.loads(pickle.dumps(fitted)) for _ in range(2))
    lost._incremental.optimizer = {}
    before = last_weight(fitted)
    moved = []
    for one in (kept, lost):
        one.partial_fit(X[:32], LEAVES[group][:32])
        moved.append(float((last_weight(one) - before).abs().mean()))
    assert moved[1] > 1.4 * moved[0]
    # The same rows twice: other noise, another order.
    again = pickle.loads(pickle.dumps(fitted))
    again._incremental.calls += 1
    fitted.partial_fit(X, LEAVES[group])
    again.partial_fit(X, LEAVES[group])
    assert not torch.equal(
        last_weight(fitted),
        last_weight(again),
    )


def test_the_preprocessing_is_that_of_the_first_rows():
    X, group = blobs()
    fitted = classifier().partial_fit(X, LEAVES[group])
    mean = fitted.pipeline_.preprocessor.state()[1]["mean"]
    fitted.partial_fit(X + 100, LEAVES[group])
    assert np.array_equal(fitted.pipeline_.preprocessor.state()[1]["mean"], mean)


def test_a_model_without_its_recipe_cannot_continue():
    X, group = blobs()
    model = classifier(epochs=1).fit(X, LEAVES[group]).pipeline_
    model.config.pop("recipe")
    with pytest.raises(HierlearnError, match="does not say which loss trained it; call fit"):
        IncrementalState.from_pipeline(model)


def test_trees_are_not_grown_further():
    X, group = blobs()
    trees = {"recipe": "trees", "network_options": {"trees": 2}}
    with pytest.raises(HierlearnError, match="trees are grown of all rows at once; call fit, not"):
        classifier(**trees).partial_fit(X, LEAVES[group])
    with pytest.raises(HierlearnError, match="trees are grown of all rows at once; call fit, not"):
        classifier(**trees).fit(X, LEAVES[group]).partial_fit(X, LEAVES[group])
