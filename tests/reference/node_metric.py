"""Distances with a metric per class (Verma et al., 2012), a diagonal each, by loops.

W_j = mean of w_c over the classes of row j (1 without any),   d = sum over d of W_jd (x_d - x_jd)^2
"""

import math


def row_weights(targets, class_weights):
    """Return the weights of a row, from its closed 0/1 targets."""
    own = [w for y, w in zip(targets, class_weights, strict=True) if y]
    width = len(class_weights[0])
    if not own:
        return [1.0] * width
    return [sum(w[d] for w in own) / len(own) for d in range(width)]


def distance(a, b, targets, class_weights, kind):
    """Return the distance of a query a and a row b with these targets."""
    total = 0.0
    for d, w in enumerate(row_weights(targets, class_weights)):
        total += w * (a[d] - b[d]) ** 2
    return math.sqrt(total) if kind == "euclidean" else total


def answers(query, rows, targets, class_weights, *, kind, scale, k, parents):
    """Return p of every class, from the k nearest rows."""
    far = [distance(query, x, y, class_weights, kind) for x, y in zip(rows, targets, strict=True)]
    near = sorted(range(len(rows)), key=lambda j: far[j])[:k]
    least = min(far[j] for j in near)
    parts = {j: math.exp((least - far[j]) / scale) for j in near}
    total = sum(parts.values())
    return [sum(w * targets[j][c] for j, w in parts.items()) / total for c in range(len(parents))]
