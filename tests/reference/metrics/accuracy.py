"""Accuracy of terminal classes, leaves, levels and decisions, and the level of decisions."""

import math

from reference.metrics.common import ROOT, positives, ranked_classes, reduce
from reference.metrics.hier_dist import candidate_classes
from reference.taxonomy import leaves, levels, terminal_labels


def terminal_accuracy(scores, targets, parents, terminals=None, reduction="mean"):
    """Whether the best terminal class is one of the row's most specific labels."""
    allowed = candidate_classes("terminal", targets, parents, terminals)
    out = []
    for row, target in zip(scores, targets, strict=True):
        labels = terminal_labels(target, parents)
        hit = ranked_classes(row, allowed)[0] in labels
        out.append(float(hit) if labels else math.nan)
    return reduce(out, reduction)


def leaf_accuracy(scores, targets, parents, reduction="mean"):
    """Whether the best leaf is positive; rows without a positive leaf do not count."""
    below = leaves(parents)
    out = []
    for row, target in zip(scores, targets, strict=True):
        counts = any(target[c] for c in below)
        out.append(float(bool(target[ranked_classes(row, below)[0]])) if counts else math.nan)
    return reduce(out, reduction)


def level_accuracy(scores, targets, parents, reduction="mean"):
    """L floats: whether the best class of the level is positive, over rows with a positive there.

    NaN for a level without such a row. "none": N rows of L.
    """
    level = levels(parents)
    rows = []
    for row, target in zip(scores, targets, strict=True):
        out = []
        for m in range(1, max(level) + 1):
            group = [c for c in range(len(parents)) if level[c] == m]
            counts = any(target[c] for c in group)
            out.append(float(bool(target[ranked_classes(row, group)[0]])) if counts else math.nan)
        rows.append(out)
    if reduction == "none":
        return rows
    return [reduce([row[m] for row in rows], reduction) for m in range(max(level))]


def answer_accuracy(classes, targets, reduction="mean"):
    """Whether the decision is a positive class; the root always is right. Every row counts."""
    out = []
    for c, target in zip(classes, targets, strict=True):
        out.append(1.0 if c == ROOT else float(bool(target[c])))
    return reduce(out, reduction)


def mean_level(classes, parents, reduction="mean"):
    """Level of the decision, 0 for the root."""
    level = levels(parents)
    return reduce([0.0 if c == ROOT else float(level[c]) for c in classes], reduction)


def mean_predicted_level(scores, targets, parents, unlabeled=True, reduction="mean"):
    """Level of the best class of all. ``unlabeled``: rows without a label count too."""
    out = mean_level([ranked_classes(row)[0] for row in scores], parents, "none")
    for i in range(len(out)):
        if not unlabeled and not positives(targets[i]):
            out[i] = math.nan
    return reduce(out, reduction)
