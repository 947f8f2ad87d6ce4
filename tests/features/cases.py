"""Rows to preprocess, and what a model folder would give back of a preprocessor."""

import json

import numpy as np
from safetensors.numpy import load, save

from hierlearn.features import from_state

NAN, INF = float("nan"), float("inf")
TEXTS = [
    "Cholera due to Vibrio cholerae 01, biovar cholerae",
    "Acute hepatitis A",
    "Acute hepatitis B",
    "Ménière's disease, left ear",
]


def some_numbers(rows, seed=0):
    """Columns of very different size, a constant one, and a tenth of the values missing."""
    rng = np.random.default_rng(seed)
    values = rng.normal([0.0, 1e6, -3.0, 1e-5], [1.0, 2.0, 1e4, 1e-6], size=(rows, 4))
    values = np.hstack([values, np.full((rows, 1), 0.1)])
    values[rng.random(values.shape) < 0.1] = NAN
    return values


def restored(preprocessor):
    """What a model folder would give back: through JSON text and safetensors bytes."""
    state, arrays = preprocessor.state()
    return from_state(json.loads(json.dumps(state)), load(save(arrays)))


def same_sparse(a, b):
    assert a.shape == b.shape
    assert a.data.dtype == b.data.dtype
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(a, part), getattr(b, part))
