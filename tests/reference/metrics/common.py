"""What several metrics share: reductions and rankings."""

import math

ROOT = -1


def reduce(values, reduction):
    """Return the rows, or the mean of those that are not NaN."""
    if reduction == "none":
        return values
    if reduction != "mean":
        raise ValueError(f"unknown reduction {reduction!r}")
    counted = [v for v in values if not math.isnan(v)]
    return sum(counted) / len(counted) if counted else math.nan


def positives(row):
    return [c for c in range(len(row)) if row[c]]


def ranked_classes(row, candidates=None):
    """Return the candidates (default: all classes), best first."""
    candidates = range(len(row)) if candidates is None else candidates
    return sorted(candidates, key=lambda c: (-row[c], c))


def column(scores, targets, c):
    return [(row[c], bool(target[c])) for row, target in zip(scores, targets, strict=True)]
