"""A class of ten remembered rows is found, and the classes of before hardly suffer."""

import numpy as np
import pytest

from hierlearn import HierarchicalClassifier
from hierlearn.pipeline.remember import MemoryFolder

SIZES = {"a/big": 240, "a/middle": 120, "b/middle": 120, "b/small": 60}
NEW = "b/new"


def rows(draw, centers, sizes):
    names = np.repeat(list(sizes), list(sizes.values()))
    return np.concatenate([draw.normal(centers[n], 1.0, (k, 8)) for n, k in sizes.items()]), names


@pytest.fixture(scope="module")
def problem():
    """A model of four classes, ten rows of a fifth that lies among them, and test rows."""
    draw = np.random.default_rng(3)
    centers = {name: draw.normal(size=8) * 1.3 for name in [*SIZES, NEW]}
    X, y = rows(draw, centers, SIZES)
    clf = HierarchicalClassifier(
        "quick", epochs=8, network_options={"width": 64}, random_state=0
    ).fit(X, y)
    few = rows(draw, centers, {NEW: 10})
    old, new = rows(draw, centers, SIZES), rows(draw, centers, {NEW: 100})
    return clf, few, old, new


def right(clf, test):
    return (clf.predict(test[0]) == test[1]).mean()


def test_ten_rows_of_a_new_class_are_found(problem, tmp_path):
    clf, few, old, new = problem
    before = right(clf, old)
    clf.save(tmp_path / "model")
    clf.remember(*few)
    assert right(clf, new) >= 0.6
    assert right(clf, old) >= before - 0.02
    # The same from a folder, and where the rows came one at a time.
    with MemoryFolder.open(tmp_path / "model") as memory:
        for x, name in zip(*few, strict=True):
            memory.remember(x[None], [[name]])
    again = HierarchicalClassifier.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(new[0]), clf.predict_proba(new[0]), atol=1e-6)
