"""Expected calibration error."""

from reference.metrics.common import column
from reference.taxonomy import levels


def binned_error(pairs, bins, closed_side):
    """Sum over bins of (share of the entries) * |mean probability - share of positives|."""
    error = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        if closed_side == "left":  # [low, high), the last one with 1
            inside = [(p, y) for p, y in pairs if low <= p and (p < high or b == bins - 1)]
        else:  # (low, high], the first one with 0
            inside = [(p, y) for p, y in pairs if p <= high and (p > low or b == 0)]
        if inside:
            mean = sum(p for p, _ in inside) / len(inside)
            share = sum(1 for _, y in inside if y) / len(inside)
            error += len(inside) / len(pairs) * abs(mean - share)
    return error


def calibration_error(probabilities, targets, parents, bins=15, pooled=False, closed_side="left"):
    """L floats: expected calibration error of all entries of a level; ``pooled``: one, of all.

    Bins of equal width over [0, 1], their edges b / bins. ``closed_side``: "left" [low, high) or
    "right" (low, high]; it matters only for a probability that is an edge.
    """
    level = levels(parents)
    columns = [column(probabilities, targets, c) for c in range(len(parents))]
    if pooled:
        return binned_error([pair for pairs in columns for pair in pairs], bins, closed_side)
    out = []
    for m in range(1, max(level) + 1):
        pairs = [pair for c in range(len(parents)) if level[c] == m for pair in columns[c]]
        out.append(binned_error(pairs, bins, closed_side))
    return out
