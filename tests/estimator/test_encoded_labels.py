"""scikit-learn replaces labels by integers in places: never a flat model in silence."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.model_selection._validation import _fit_and_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from estimator.toy_data import LEAVES, blobs, classifier, solved
from hierlearn import Hierarchy, cross_val_proba, metrics
from hierlearn.errors import HierlearnError, LabelError

X, GROUP = blobs(60, noise=2.0)
Y = LEAVES[GROUP]
H = Hierarchy.from_paths(sorted(LEAVES))
LOST = "replaced the labels by integers .* so their taxonomy is lost"


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba"])
@pytest.mark.parametrize("hierarchy", [None, H])
def test_cross_val_predict_does_not_train_flat(method, hierarchy):
    message = f"cross_val_predict of scikit-learn {LOST}; hierlearn.cross_val_proba"
    with pytest.raises(LabelError, match=message):
        cross_val_predict(solved(hierarchy=hierarchy), X, Y, cv=2, method=method)
    pipe = make_pipeline(StandardScaler(), solved(hierarchy=hierarchy))
    with pytest.raises(LabelError, match=message):
        cross_val_predict(pipe, X, Y, cv=2, method=method)
    bare = [name.split("/")[-1] for name in Y]
    with pytest.raises(LabelError, match=message):  # no paths, but a taxonomy
        cross_val_predict(solved(hierarchy=H), X, bare, cv=2, method=method)


def test_a_process_of_its_own_warns():
    """A worker's stack begins with scikit-learn's function that fits one fold."""
    with pytest.warns(UserWarning, match="so a taxonomy in their names is lost"):
        _fit_and_predict(
            solved(), X, GROUP, np.arange(40), np.arange(40, 60), None, "predict_proba"
        )


@pytest.mark.parametrize(
    "ensemble",
    [
        VotingClassifier([("a", solved())]),
        StackingClassifier([("a", solved())], LogisticRegression()),
        BaggingClassifier(solved(), 2),
    ],
    ids=lambda one: type(one).__name__,
)
def test_ensembles_of_scikit_learn_do_not_train_flat(ensemble):
    name = type(ensemble).__name__
    with pytest.raises(LabelError, match=f"{name} of scikit-learn {LOST}; average networks"):
        ensemble.fit(X, Y)
    assert ensemble.fit(X, GROUP).predict(X[:3]).shape == (3,)  # flat labels have no taxonomy


def test_flat_labels_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for y in (GROUP, GROUP + 10, np.array(list("abcde"))[GROUP]):
            p = cross_val_predict(solved(), X, y, cv=2, method="predict_proba")
            assert (np.unique(y)[p.argmax(axis=1)] == y).mean() > 0.5
            assert cross_val_predict(solved(), X, y, cv=2).shape == (60,)


def test_cross_val_predict_of_decisions_has_the_labels():
    found = cross_val_predict(solved(), X, Y, cv=2)
    assert set(found) <= set(LEAVES)
    assert (found == Y).mean() > 0.5


# ---------------------------------------------------------------------- cross_val_proba


def test_every_row_is_predicted_by_a_model_that_did_not_see_it():
    cv = KFold(3, shuffle=True, random_state=0)
    found = cross_val_proba(solved(), X, Y, cv=cv)
    expected = np.empty((60, len(H)))
    for train, test in cv.split(X):
        expected[test] = solved().fit(X[train], Y[train], H).predict_node_proba(X[test])
    np.testing.assert_array_equal(found, expected)
    assert metrics.leaf_accuracy(found, Y, H) > 0.5


def test_columns_are_those_of_all_labels_whatever_a_fold_has():
    rare = Y.astype(object)
    rare[0] = "plant/rose"
    h = Hierarchy.from_paths(sorted(set(rare)))
    found = cross_val_proba(solved(), X, rare, cv=KFold(2))
    assert found.shape == (60, len(h))
    assert not np.isnan(found).any()


def test_forms_of_labels_pipelines_and_folds():
    cv = StratifiedKFold(2)
    expected = cross_val_proba(solved(), X, Y, cv=cv)
    levels = pd.DataFrame([path.split("/") + [None] * (2 - path.count("/")) for path in Y])
    bare = [name.split("/")[-1] for name in Y]
    np.testing.assert_array_equal(cross_val_proba(solved(), X, levels, cv=2), expected)
    np.testing.assert_array_equal(cross_val_proba(solved(), X, bare, cv=2, hierarchy=H), expected)
    np.testing.assert_array_equal(cross_val_proba(solved(hierarchy=H), X, bare, cv=2), expected)
    pipe = make_pipeline(StandardScaler(), solved())
    assert cross_val_proba(pipe, pd.DataFrame(X), Y, cv=2).shape == expected.shape
    several = [[label, "pet"] for label in Y]
    assert cross_val_proba(classifier(epochs=2), X, several, cv=2).shape == (60, len(H) + 1)
    numbers = cross_val_proba(solved(), X, 10 * (GROUP + 1), cv=2)  # names, not class numbers
    assert (numbers.argmax(axis=1) == GROUP).mean() > 0.5
    with pytest.raises(HierlearnError, match="is needed, or a pipeline that ends in one, not Log"):
        cross_val_proba(LogisticRegression(), X, Y)


@pytest.mark.parametrize("options", [{"method": "temperature"}, {"ensemble": False}])
def test_what_calibrates_is_named(options):
    with pytest.raises(LabelError, match=r"CalibratedClassifierCV of .* \(calibration=True\)"):
        CalibratedClassifierCV(solved(), cv=2, **options).fit(X, Y)
