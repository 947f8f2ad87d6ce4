"""Metrics of the ranking of all classes."""

import math

from reference.metrics.common import positives, ranked_classes, reduce


def hit_at_k(scores, targets, k=1, reduction="mean"):
    """Whether one of the k best classes is positive."""
    out = []
    for row, target in zip(scores, targets, strict=True):
        hit = any(target[c] for c in ranked_classes(row)[:k])
        out.append(float(hit) if positives(target) else math.nan)
    return reduce(out, reduction)


def mean_reciprocal_rank(scores, targets, reduction="mean"):
    """1 / place of the first positive class in the ranking, places counted from 1."""
    out = []
    for row, target in zip(scores, targets, strict=True):
        value = math.nan
        for place, c in enumerate(ranked_classes(row), start=1):
            if target[c]:
                value = 1 / place
                break
        out.append(value)
    return reduce(out, reduction)


def coverage(scores, targets, reduction="mean"):
    """Number of classes that score at least as much as the positive that scores least."""
    out = []
    for row, target in zip(scores, targets, strict=True):
        value = math.nan
        if positives(target):
            least = min(row[c] for c in positives(target))
            value = float(sum(1 for s in row if s >= least))
        out.append(value)
    return reduce(out, reduction)
