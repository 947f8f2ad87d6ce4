"""Save a preprocessor, load it again and compare what it gives."""

import json

import numpy as np
from safetensors.numpy import load, save

from hierlearn.features import from_state


def save_and_load(preprocessor):
    """Restore a preprocessor as a model folder does: through JSON text and safetensors bytes."""
    state, arrays = preprocessor.state()
    return from_state(json.loads(json.dumps(state)), load(save(arrays)))


def assert_same_sparse(a, b):
    assert a.shape == b.shape
    assert a.data.dtype == b.data.dtype
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(a, part), getattr(b, part))
