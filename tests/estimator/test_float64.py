"""Double precision for predicting: made on demand, never stored, the same model."""

import pickle

import numpy as np
import torch

from estimator.toy_data import LEAVES, blobs, classifier
from hierlearn.estimator.float64 import Predictor


def test_the_copy_is_double_and_not_stored():
    X, group = blobs()
    model = classifier(recipe="hcl", epochs=1).fit(X, LEAVES[group]).pipeline_
    predictor = Predictor(model)
    assert predictor.as_float64 is predictor.as_float64
    assert predictor.as_float64.network.heads["main"].linear.weight.dtype == torch.float64
    assert model.network.heads["main"].linear.weight.dtype == torch.float32
    assert set(vars(pickle.loads(pickle.dumps(predictor)))) == {"pipeline"}
    rough, fine = (one.probabilities(X) for one in (model, predictor.as_float64))
    assert fine.dtype == torch.float64
    np.testing.assert_allclose(rough, fine, atol=1e-6)
