"""classes_ and predict_proba as scikit-learn reads them: on flat and on hierarchical labels."""

import numpy as np
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score

from estimator.toy_data import classifier
from hierlearn import Hierarchy, LabelSpace, join_levels
from hierlearn.decoding import make_decoder
from hierlearn.decoding.probabilities import terminal_log_distribution

GROUP = np.arange(96) % 4
PATHS = np.array(["animal/dog/pug", "animal/dog", "animal/cat", "plant"])
FORMS = {
    "paths": PATHS[GROUP],  # with an inner class that is a label, too
    "levels": [path.split("/") for path in PATHS[GROUP]],
    "strings": np.array(["b10", "b2", "c", "a"])[GROUP],
    "numbers": np.array([7, 3, 12, 0])[GROUP],
    "booleans": GROUP > 1,
}
draw = np.random.default_rng(0)
X = draw.normal(size=(4, 5))[GROUP] * 1.5 + draw.normal(size=(96, 5))


@pytest.fixture(scope="module", params=FORMS)
def fitted(request):
    y = FORMS[request.param]
    model = classifier(recipe="softmax", epochs=15).fit(X, y)
    return model, join_levels(y) if request.param == "levels" else y


def test_the_columns_are_the_classes_in_order(fitted):
    model, y = fitted
    assert model.classes_.tolist() == np.unique(y).tolist()
    p = model.predict_proba(X)
    assert p.shape == (96, len(model.classes_))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.log(p), model.predict_log_proba(X), rtol=1e-9, atol=1e-12)
    answers = model.predict(X)
    answers = join_levels(answers) if answers.ndim == 2 else answers
    assert (model.classes_[p.argmax(axis=1)] == answers).all()
    assert log_loss(y, p) < 0.9


@pytest.mark.parametrize("form", ["paths", "numbers"])
@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc_ovr", "accuracy"])
def test_scores_by_name(form, scoring):
    scores = cross_val_score(
        classifier(recipe="softmax", epochs=8), X, FORMS[form], cv=2, scoring=scoring
    )
    assert np.isfinite(scores).all()
    assert (scores > (-1.2 if scoring == "neg_log_loss" else 0.5)).all()


@pytest.mark.parametrize("form", ["paths", "numbers"])
def test_calibrated(form):
    y = FORMS[form]
    model = CalibratedClassifierCV(classifier(recipe="softmax", epochs=8), cv=2).fit(X, y)
    assert model.classes_.tolist() == np.unique(y).tolist()
    assert model.score(X, y) > 0.6


def test_a_decoder_may_answer_otherwise():
    model = classifier(recipe="softmax", epochs=2).fit(X, FORMS["paths"])
    best = model.classes_[model.predict_proba(X).argmax(axis=1)]
    assert (model.predict(X, decoder="leaf") == best).all()
    assert (model.predict(X, decoder="stop", threshold=0.9) != best).any()


def test_several_labels_have_a_column_per_class():
    model = classifier(recipe="max", epochs=2).fit(X, [{path, "pet"} for path in FORMS["paths"]])
    assert model.classes_.tolist() == list(model.hierarchy_.names)
    np.testing.assert_allclose(model.predict_proba(X), model.predict_node_proba(X), rtol=1e-6)


@pytest.mark.parametrize("terminals", [(), ("a",), ("a", "d")])
def test_the_distribution_by_hand(terminals):
    """A loop over the classes, on a DAG: what is left of p below a terminal class, then shares."""
    h = Hierarchy.from_edges([("a", "x"), ("a", "y"), ("d", "y"), ("d", "z")])
    space = LabelSpace(h, terminals)
    p = torch.rand(20, len(h), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p[0] = 0.0  # nothing is left
    found = terminal_log_distribution(p.log(), space).exp()
    for row in range(20):
        scores = []
        for number in space.terminals:
            below = sum(float(p[row, child]) for child in h.children(int(number)))
            scores.append(max(0.0, float(p[row, number]) - below))
        total = sum(scores)
        expected = [one / total if total else 1 / len(scores) for one in scores]
        np.testing.assert_allclose(found[row], expected, rtol=1e-9)
    leaf = make_decoder(space, "leaf")(p[1:])
    assert (space.terminal_ids()[found[1:].argmax(dim=1)] == leaf).all()
