"""Double precision for predicting: made on demand, never stored, the same model."""

import pickle

import numpy as np
import torch

from estimator_problems import LEAVES, blobs, classifier
from hierlearn.estimator.float64 import Precise


def test_the_copy_is_double_and_not_stored():
    X, group = blobs()
    model = classifier(epochs=1).fit(X, LEAVES[group]).model_
    precise = Precise(model)
    assert precise.model is precise.model
    assert precise.model.network.head.weight.dtype == torch.float64
    assert model.network.head.weight.dtype == torch.float32
    assert "model" not in vars(pickle.loads(pickle.dumps(precise)))
    rough, fine = (one.probabilities(X) for one in (model, precise.model))
    assert fine.dtype == torch.float64
    np.testing.assert_allclose(rough, fine, atol=1e-6)
