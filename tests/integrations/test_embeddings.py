"""A frozen encoder before the estimator: one scikit-learn pipeline, as good as its two parts."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from hierlearn import HierarchicalClassifier, scorer
from integrations.tiny import NAMES, bert, token_rows


class Embedder(TransformerMixin, BaseEstimator):
    """Rows of tokens to the mean-pooled vectors of a transformer that does not learn."""

    def __init__(self, seed=0):
        self.seed = seed

    def fit(self, X, y=None):
        self.model_ = bert(self.seed).bert.eval()
        return self

    @torch.no_grad()
    def transform(self, X):
        return self.model_(torch.as_tensor(X)).last_hidden_state.mean(dim=1).numpy()


@pytest.fixture(scope="module")
def problem():
    tokens, index = token_rows(60)
    tokens[:, 2:] = tokens[:, 1:2]  # so that the mean tells the class
    return tokens, np.array(NAMES)[index]


def classifier():
    return HierarchicalClassifier(recipe="hcl", epochs=10, random_state=0)


def test_a_pipeline_is_its_parts(problem):
    X, y = problem
    pipe = make_pipeline(Embedder(), classifier()).fit(X, y)
    vectors = Embedder().fit_transform(X)
    apart = classifier().fit(vectors, y)
    np.testing.assert_array_equal(pipe.predict_proba(X), apart.predict_proba(vectors))
    assert (pipe.predict(X) == y).mean() > 0.9
    again = pickle.loads(pickle.dumps(pipe))
    np.testing.assert_array_equal(again.predict(X), pipe.predict(X))


def test_it_is_cloned_scored_and_searched_as_one(problem):
    X, y = problem
    pipe = clone(make_pipeline(Embedder(), classifier())).set_params(embedder__seed=1)
    scores = cross_val_score(pipe, X, y, cv=2, scoring=scorer("leaf-accuracy"))
    assert scores.min() > 0.8
