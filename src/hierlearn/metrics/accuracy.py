"""Accuracies: is the best class of some part of the hierarchy right?

    terminal accuracy  the best terminal class is one of the row's terminal labels
    leaf accuracy      the best leaf is positive, over the rows that have a leaf label
    level accuracy     the best class of each level is positive, over the rows with a label there
    mean level         the mean level of the best class of all: how specific the answers are
    answer accuracy    the decision lies in the closure; the root is always right

Hit@1 over all classes cannot see dead leaves: always answering a top class may score well. Leaf (or
terminal) accuracy and the mean predicted level show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hierlearn.errors import HierlearnError
from hierlearn.metrics.choices import best_classes, terminal_classes, terminal_mask
from hierlearn.metrics.inputs import (
    Reduction,
    as_classes,
    check_rows,
    decisions,
    inputs,
    only_where,
    reduce_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label


def terminal_accuracy(
    scores: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    terminals: Iterable[Label] | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the share of rows whose best terminal class is one of their terminal labels.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot.
        hierarchy: the taxonomy.
        terminals: inner classes that are terminal; the leaves always are. By default those that
            occur as a most specific label in these targets.
        reduction: "mean" over the rows with a label, or "none" for (N,), NaN without one.
    """
    scores, targets = inputs(scores, targets, hierarchy)
    best = best_classes(scores, terminal_classes(hierarchy, terminals, targets))
    right = terminal_mask(targets, hierarchy).gather(1, best)[:, 0]
    right = only_where(right, targets.any(dim=1))
    return reduce_rows(right, reduction, "terminal accuracy")


def leaf_accuracy(
    scores: Tensor, targets: Tensor, hierarchy: Hierarchy, reduction: Reduction = "mean"
) -> Tensor:
    """Return the share of rows whose best leaf is positive.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot.
        hierarchy: the taxonomy.
        reduction: "mean" over the rows with a leaf label, or "none" for (N,), NaN without one.
    """
    scores, targets = inputs(scores, targets, hierarchy)
    leaves = torch.tensor(hierarchy.leaves, device=scores.device)
    right = targets.gather(1, best_classes(scores, leaves))[:, 0]
    rows = only_where(right, targets[:, leaves].any(dim=1))
    return reduce_rows(rows, reduction, "leaf accuracy", "a leaf label")


def level_accuracy(scores: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (L,) the share of rows whose best class of each level is positive, NaN without rows.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot.
        hierarchy: the taxonomy.
    """
    right, counts = level_hits(scores, targets, hierarchy)
    check_rows(len(targets), "level accuracy")
    if not bool(counts.any()):
        raise HierlearnError(
            f"none of the {len(targets)} rows has a label, so there is no level accuracy"
        )
    return right / counts


def level_hits(scores: Tensor, targets: Tensor, hierarchy: Hierarchy) -> tuple[Tensor, Tensor]:
    """Return (L,) float64 right rows and counted rows of each level."""
    scores, targets = inputs(scores, targets, hierarchy)
    right, counts = [], []
    for columns in hierarchy.level_slices:
        truth = targets[:, columns]
        right.append(truth.gather(1, best_classes(scores[:, columns])).sum())
        counts.append(truth.any(dim=1).sum())
    return torch.stack(right).double(), torch.stack(counts).double()


def mean_predicted_level(
    scores: Tensor, targets: Tensor, hierarchy: Hierarchy, reduction: Reduction = "mean"
) -> Tensor:
    """Return the mean level of the best class of all; every row counts.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot; not used, so that all metrics are called alike.
        hierarchy: the taxonomy.
        reduction: "mean", or "none" for (N,).
    """
    scores, _ = inputs(scores, targets, hierarchy)
    return mean_level(best_classes(scores)[:, 0], hierarchy, reduction)


def mean_level(classes: Tensor, hierarchy: Hierarchy, reduction: Reduction = "mean") -> Tensor:
    """Return the mean level of decisions.

    Args:
        classes: (N,) class numbers, -1 for the root, whose level is 0.
        hierarchy: the taxonomy.
        reduction: "mean", or "none" for (N,).
    """
    classes = as_classes(classes, len(hierarchy))
    levels = torch.tensor([*hierarchy.levels.tolist(), 0], device=classes.device)
    return reduce_rows(levels[classes].double(), reduction, "mean level")


def answer_accuracy(classes: Tensor, targets: Tensor, reduction: Reduction = "mean") -> Tensor:
    """Return the share of decisions that lie in the closure; the root is always right.

    Args:
        classes: (N,) class numbers, -1 for the root.
        targets: (N, C) closed multi-hot; a row without labels is of the root alone.
        reduction: "mean" over all rows, or "none" for (N,).
    """
    classes, targets = decisions(classes, targets)
    inside = targets.gather(1, classes.clamp_min(0)[:, None])[:, 0]
    return reduce_rows((inside | (classes < 0)).double(), reduction, "answer accuracy")
