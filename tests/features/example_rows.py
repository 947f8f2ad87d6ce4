"""Example rows to preprocess: numbers with missing values, and texts."""

import numpy as np

NAN, INF = float("nan"), float("inf")
TEXTS = [
    "Cholera due to Vibrio cholerae 01, biovar cholerae",
    "Acute hepatitis A",
    "Acute hepatitis B",
    "Ménière's disease, left ear",
]


def random_numbers(rows, seed=0):
    """Columns of very different scales, a constant one, and a tenth of the values missing."""
    rng = np.random.default_rng(seed)
    values = rng.normal([0.0, 1e6, -3.0, 1e-5], [1.0, 2.0, 1e4, 1e-6], size=(rows, 4))
    values = np.hstack([values, np.full((rows, 1), 0.1)])
    values[rng.random(values.shape) < 0.1] = NAN
    return values
