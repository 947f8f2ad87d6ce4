"""Conformal sets of candidates."""

import math

from reference.decoding.common import kept_or_all
from reference.decoding.risk import check_calibration
from reference.taxonomy import (
    ancestors_or_self,
    children,
    descendants_or_self,
    leaves,
    terminal_labels,
)


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


def terminal_score(row, t, parents, spread=None, terminals=None):
    """Return s of a terminal class: its own mass, or with ``spread`` its membership.

    The mass of a leaf is its p, that of an inner class its p less that of its children, at least 0.
    """
    if spread is not None:
        return memberships(row, parents, spread, terminals)[t]
    return max(0, row[t] - sum(row[k] for k in children(parents)[t]))


def conformal_values(row, parents, spread=None, terminals=None, keep=None):
    """Return v of every class: the largest s of the terminal classes at or below it, or 0."""
    terminals = leaves(parents) if terminals is None else terminals
    kept = kept_or_all(parents, keep)
    out = []
    for c in range(len(parents)):
        ends = set(descendants_or_self(parents, c)) & set(terminals) & set(kept)
        scores = [terminal_score(row, t, parents, spread, terminals) for t in ends]
        out.append(max(scores, default=0))
    return out


def conformal(rows, parents, threshold=0, spread=None, terminals=None, keep=None):
    """Return the candidates: the classes whose v reaches the threshold."""
    kept = kept_or_all(parents, keep)
    out = []
    for row in rows:
        v = conformal_values(row, parents, spread, terminals, keep)
        out.append([c in kept and v[c] >= threshold for c in range(len(parents))])
    return out


def conformal_subtrees(rows, parents, threshold=0, spread=None, terminals=None):
    """Return the classes whose subtrees make up the candidates.

    Each terminal candidate climbs as long as a parent has no other terminal class at or below it
    than candidates, and stays where it is if that brings none; an inner terminal class without a
    candidate below it, but not the whole of its subtree, stands for itself.
    """
    terminals = set(leaves(parents) if terminals is None else terminals)
    below = [set(descendants_or_self(parents, c)) for c in range(len(parents))]
    out = []
    for chosen in conformal(rows, parents, threshold, spread, terminals):
        ends = {t for t in terminals if chosen[t]}
        whole = [c for c in range(len(parents)) if below[c] & terminals <= ends]
        tops = {c for c in whole if not set(parents[c]) & set(whole)}
        found = set()
        for c in tops:
            inside = below[c] & terminals
            found |= inside if len(inside) == 1 else {c}
        found |= {t for t in ends if t not in whole and not below[t] - {t} & ends}
        out.append([c in found for c in range(len(parents))])
    return out


def leaf_conformal(rows, parents, threshold):
    """Return plain split conformal prediction over the leaves: those of p at or above it."""
    return [[c for c in leaves(parents) if row[c] >= threshold] for row in rows]


def conformal_score(row, target, parents, spread=None, terminals=None):
    """Return the smallest v among the most specific labels of a row; infinite without labels."""
    v = conformal_values(row, parents, spread, terminals)
    return min((v[t] for t in terminal_labels(target, parents)), default=math.inf)


def conformal_threshold(rows, targets, parents, alpha, spread=None, terminals=None):
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
