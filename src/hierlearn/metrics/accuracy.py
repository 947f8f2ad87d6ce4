"""Accuracies and ranking metrics.

Accuracies: is the best class of some part of the hierarchy right?

    terminal accuracy  the best terminal class is one of the row's terminal labels
    leaf accuracy      the best leaf is positive, over the rows that have a leaf label
    level accuracy     the best class of each level is positive, over the rows with a label there
    mean level         the mean level of the best class of all: how specific the predictions are
    answer accuracy    the decision lies in the closure; the root is always right

Hit@1 over all classes does not show leaves that are never predicted: always predicting a top class
may score well. Leaf (or terminal) accuracy and the mean predicted level show them.

Ranking metrics: where in the row's ranking of all classes the positive ones stand.

    rank(i) = 1 + the number of classes before the first positive one
    hit@k   = mean of [rank(i) <= k]
    MRR     = mean of 1 / rank(i)
    coverage = mean of the number of classes with a score of at least the lowest positive one's

Classes are ranked by score, the earlier class first where scores tie. The rank needs no sort: it
counts the scores above the best positive one, and the equal ones in an earlier column. Coverage
counts all that tie with the lowest positive class, as scikit-learn's ``coverage_error`` does.
A row without a positive class does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.decoding.decoder import most_specific
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.inputs import (
    Reduction,
    as_classes,
    best_classes,
    by_rows,
    check_count,
    check_rows,
    decisions,
    hierarchy_of,
    inputs,
    only_where,
    reduce_rows,
)

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.metrics.inputs import Decisions, Scores, Space, Targets


def terminal_accuracy(
    scores: Scores, targets: Targets, label_space: Space, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return the fraction of rows whose best terminal class is one of their terminal labels.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.
        reduction: "mean" over the rows with a label, or "none" for (N,), NaN without one.
    """
    space = LabelSpace.of(label_space)
    scores, targets = inputs(scores, targets, space.hierarchy)
    best = best_classes(scores, space.terminal_ids())
    right = most_specific(targets, space.hierarchy).gather(1, best)[:, 0]
    rows = only_where(right, targets.any(dim=1))
    return reduce_rows(rows, reduction, "terminal accuracy")


def leaf_accuracy(
    scores: Scores, targets: Targets, label_space: Space, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return the fraction of rows whose best leaf is positive.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy.
        reduction: "mean" over the rows with a leaf label, or "none" for (N,), NaN without one.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    scores, targets = inputs(scores, targets, hierarchy)
    leaves = torch.tensor(hierarchy.leaves, device=scores.device)
    right = targets.gather(1, best_classes(scores, leaves))[:, 0]
    rows = only_where(right, targets[:, leaves].any(dim=1))
    return reduce_rows(rows, reduction, "leaf accuracy", "a leaf label")


def level_accuracy(scores: Scores, targets: Targets, label_space: Space) -> Tensor:
    """Return (L,) the fraction of rows whose best class of a level is positive, NaN without rows.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy.
    """
    return level_value(level_sums(scores, targets, label_space))


def level_sums(scores: Scores, targets: Targets, label_space: Space) -> Tensor:
    """Return (3, L) float64: the rows that are right at each level, have a label there, and all."""
    hierarchy = LabelSpace.of(label_space).hierarchy
    scores, targets = inputs(scores, targets, hierarchy)
    sums = []
    for columns in hierarchy.level_slices:
        truth = targets[:, columns]
        right = truth.gather(1, best_classes(scores[:, columns])).sum()
        sums.append(torch.stack([right, truth.any(dim=1).sum(), right.new_tensor(len(truth))]))
    return torch.stack(sums, dim=1).double()


def level_value(sums: Tensor) -> Tensor:
    """Return (L,) the accuracy from ``level_sums``."""
    right, labeled, rows = sums.unbind()
    check_rows(int(rows[0]), "level accuracy")
    if not bool(labeled.any()):
        raise HierlearnError(
            f"none of the {int(rows[0])} rows has a label, so there is no level accuracy"
        )
    return right / labeled


def mean_predicted_level(
    scores: Scores, targets: Targets, label_space: Space, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return the mean level of the best class of all; every row counts.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot, or labels; only checked, so that all metrics have the
            same arguments.
        label_space: the taxonomy.
        reduction: "mean", or "none" for (N,).
    """
    space = LabelSpace.of(label_space)
    scores, _ = inputs(scores, targets, space.hierarchy)
    return mean_level(best_classes(scores)[:, 0], space, reduction=reduction)


def mean_level(classes: Decisions, label_space: Space, *, reduction: Reduction = "mean") -> Tensor:
    """Return the mean level of decisions.

    Args:
        classes: (N,) class numbers, -1 for the root, whose level is 0; or names, None for the root.
        label_space: the taxonomy.
        reduction: "mean", or "none" for (N,).
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    classes = as_classes(classes, hierarchy=hierarchy)
    levels = torch.tensor([*hierarchy.levels.tolist(), 0], device=classes.device)
    return reduce_rows(levels[classes].double(), reduction, "mean level")


def answer_accuracy(
    classes: Decisions,
    targets: Targets,
    label_space: Space | None = None,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the fraction of decisions that lie in the closure; the root is always right.

    Args:
        classes: (N,) class numbers, -1 for the root; or names, None for the root.
        targets: (N, C) closed multi-hot, or labels; a row without labels contains only the root.
        label_space: the taxonomy, which names and labels need.
        reduction: "mean" over all rows, or "none" for (N,).
    """
    classes, targets = decisions(classes, targets, hierarchy_of(label_space))
    inside = targets.gather(1, classes.clamp_min(0)[:, None])[:, 0]
    return reduce_rows((inside | (classes < 0)).double(), reduction, "answer accuracy")


# ---------------------------------------- ranking


def hit_at_k(
    scores: Scores,
    targets: Targets,
    label_space: Space | None = None,
    *,
    k: int = 1,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the fraction of rows with a positive class among the k best-scored ones.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy, which labels need.
        k: how many classes are considered, 1..C.
        reduction: "mean" over the rows with a label, or "none" for (N,), NaN without one.
    """
    scores, targets = inputs(scores, targets, hierarchy_of(label_space), closed=False)
    check_count(k, scores.shape[1])
    hits = (by_rows(_ranks, scores, targets) <= k).double()
    return reduce_rows(only_where(hits, targets.any(dim=1)), reduction, f"hit@{k}")


def mean_reciprocal_rank(
    scores: Scores,
    targets: Targets,
    label_space: Space | None = None,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the mean of 1 / rank of the first positive class.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy, which labels need.
        reduction: "mean" over the rows with a label, or "none" for (N,), NaN without one.
    """
    scores, targets = inputs(scores, targets, hierarchy_of(label_space), closed=False)
    reciprocal = by_rows(_ranks, scores, targets).double().reciprocal()
    rows = only_where(reciprocal, targets.any(dim=1))
    return reduce_rows(rows, reduction, "mean reciprocal rank")


def coverage(
    scores: Scores,
    targets: Targets,
    label_space: Space | None = None,
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return how far down the ranking every positive class has been met.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy, which labels need.
        reduction: "mean" over the rows with a label, or "none" for (N,), NaN without one.
    """
    scores, targets = inputs(scores, targets, hierarchy_of(label_space), closed=False)

    def depths(scores: Tensor, targets: Tensor) -> Tensor:
        lowest = scores.masked_fill(~targets, torch.inf).amin(dim=1, keepdim=True)
        return (scores >= lowest).sum(dim=1)

    rows = only_where(by_rows(depths, scores, targets), targets.any(dim=1))
    return reduce_rows(rows, reduction, "coverage")


def _ranks(scores: Tensor, targets: Tensor) -> Tensor:
    """Return (N,) the rank of the first positive class; meaningless for a row without one."""
    best = scores.masked_fill(~targets, -torch.inf).amax(dim=1, keepdim=True)
    ties = scores == best
    # argmax gives the first of equal values: the first positive class of the best score.
    first = (ties & targets).byte().argmax(dim=1, keepdim=True)
    columns = torch.arange(scores.shape[1], device=scores.device)
    before = (scores > best) | (ties & (columns < first))
    return 1 + before.sum(dim=1)
