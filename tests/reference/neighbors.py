"""Answers by neighbors in naive loops, from the definitions alone.

    w_j = v_j exp(-d(x, x_j) / scale) / sum over rows i of v_i exp(-d(x, x_i) / scale)
    p_c = sum over j of w_j y_jc, over the rows whose label is known, divided by their weight

Rows are lists of numbers; labels and masks are lists of 0 and 1 in the order of the classes.
``parents[c]`` lists the parents of class c.
"""

from __future__ import annotations

import math

from reference.hierarchy import ancestors


def squared(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def euclidean(a, b):
    return math.sqrt(squared(a, b))


def cosine(a, b):
    inner = sum(x * y for x, y in zip(a, b, strict=True))
    lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return 1 - inner / lengths


DISTANCES = {"squared": squared, "euclidean": euclidean, "cosine": cosine}


def nearest(query, rows, k, distance):
    """Return the numbers of the k nearest rows, nearest first."""
    order = sorted(range(len(rows)), key=lambda j: DISTANCES[distance](query, rows[j]))
    return order[:k]


def neighbor_weights(query, rows, scale, distance, *, counts=None, excluded=()):
    """Return the weight of every row; 0 for the excluded ones and those that count 0."""
    counts = [1.0] * len(rows) if counts is None else counts
    kept = [j for j in range(len(rows)) if j not in excluded and counts[j] > 0]
    logits = {j: -DISTANCES[distance](query, rows[j]) / scale + math.log(counts[j]) for j in kept}
    top = max(logits.values(), default=0.0)
    total = sum(math.exp(x - top) for x in logits.values())
    return [math.exp(logits[j] - top) / total if j in logits else 0.0 for j in range(len(rows))]


def mixture(weights, targets, mask, parents):
    """Return p of every class; 0 where no row of any weight knows it."""
    found = []
    for c in range(len(parents)):
        has = known = 0.0
        for j, w in enumerate(weights):
            if mask is None or mask[j][c]:
                known += w
                has += w * targets[j][c]
        found.append(has / known if known > 0 else 0.0)
    if mask is None:
        return found
    return [min(found[a] for a in {c} | ancestors(parents, c)) for c in range(len(parents))]


def smoothed(p, smoothing):
    """Return the pair (p, 1 - p) with the weight that training gives to either answer."""
    e = smoothing
    return (1 - 2 * e) * p + e, (1 - 2 * e) * (1 - p) + e
