"""A linear SVM with a squared hinge, by Newton's method on dense rows in double precision."""

import numpy as np


def objective(w, x, y, costs):
    """Return |w|^2 / 2 + sum c max(0, 1 - y w x)^2; the last weight is that of a constant."""
    short = np.maximum(0, 1 - y * (x @ w[:-1] + w[-1]))
    return w @ w / 2 + (costs * short * short).sum()


def svm(x, y, costs):
    """Return (D + 1,) weights.

    Args:
        x: (N, D) rows.
        y: (N,) 1 or -1; 0 leaves a row out.
        costs: (N,) what each row costs.
    """
    x = np.hstack([np.asarray(x, dtype=np.float64), np.ones((len(x), 1))])
    w = np.zeros(x.shape[1])
    costs = np.where(y == 0, 0.0, costs)
    for _ in range(200):
        short = 1 - y * (x @ w)
        inside = (short > 0) & (costs > 0)
        rows, weights = x[inside], 2 * costs[inside]
        gradient = w - rows.T @ (weights * y[inside] * short[inside])
        if np.abs(gradient).max() < 1e-10:
            break
        step = np.linalg.solve(np.eye(len(w)) + rows.T @ (weights[:, None] * rows), gradient)
        size, before = 1.0, objective(w, x[:, :-1], y, costs)
        while size > 1e-8 and objective(w - size * step, x[:, :-1], y, costs) > before:
            size /= 2
        w = w - size * step
    return w
