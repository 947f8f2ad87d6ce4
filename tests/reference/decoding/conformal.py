"""Conformal sets of candidates."""

import math

from reference.decoding.common import kept_or_all
from reference.decoding.risk import check_calibration
from reference.taxonomy import ancestors_or_self, descendants_or_self, leaves, terminal_labels


def memberships(row, parents, spread=1, terminals=None):
    """Return v of every class: the largest density of the class and its ancestors.

    The density of a class is p / size^spread, its size the number of terminal classes (the leaves
    unless ``terminals`` says otherwise) at or below it; without any the density is 0.
    """
    if terminals is None:
        terminals = leaves(parents)
    density = []
    for c in range(len(parents)):
        size = len(set(descendants_or_self(parents, c)) & set(terminals))
        density.append(row[c] / size**spread if size else 0)
    return [max(density[a] for a in ancestors_or_self(parents, c)) for c in range(len(parents))]


def conformal(rows, parents, threshold=0, spread=1, terminals=None, keep=None):
    """Return the candidates: all classes at or below one whose density reaches the threshold."""
    kept = kept_or_all(parents, keep)
    out = []
    for row in rows:
        v = memberships(row, parents, spread, terminals)
        out.append([c in kept and v[c] >= threshold for c in range(len(parents))])
    return out


def conformal_subtrees(rows, parents, threshold=0, spread=1, terminals=None):
    """Return the topmost candidates: those without a candidate among their ancestors."""
    out = []
    for chosen in conformal(rows, parents, threshold, spread, terminals):
        tops = []
        for c in range(len(parents)):
            above = [a for a in ancestors_or_self(parents, c) if a != c]
            tops.append(chosen[c] and not any(chosen[a] for a in above))
        out.append(tops)
    return out


def conformal_score(row, target, parents, spread=1, terminals=None):
    """Return the smallest v among the most specific labels of a row; infinite without labels."""
    v = memberships(row, parents, spread, terminals)
    return min((v[t] for t in terminal_labels(target, parents)), default=math.inf)


def conformal_threshold(rows, targets, parents, alpha, spread=1, terminals=None):
    """Return the k-th smallest score, k the largest integer with k / (n + 1) <= alpha.

    k is floor(alpha (n + 1)), without the rounding of that product: 0.29 * 100 is less than 29.
    """
    check_calibration(rows, alpha)
    scores = sorted(
        conformal_score(row, target, parents, spread, terminals)
        for row, target in zip(rows, targets, strict=True)
    )
    k = max(k for k in range(len(scores) + 1) if k / (len(scores) + 1) <= alpha)
    return scores[k - 1]
