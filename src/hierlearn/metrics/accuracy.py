"""Accuracies: is the best class of some part of the hierarchy right?

    terminal accuracy  the best terminal class is one of the row's terminal labels
    leaf accuracy      the best leaf is positive, over the rows that have a leaf label
    level accuracy     the best class of each level is positive, over the rows with a label there
    mean level         the mean level of the best class of all: how specific the predictions are
    answer accuracy    the decision lies in the closure; the root is always right

Hit@1 over all classes does not show leaves that are never predicted: always predicting a top class
may score well. Leaf (or terminal) accuracy and the mean predicted level show them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.decoding.edges import most_specific
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.choices import best_classes
from hierlearn.metrics.inputs import as_classes, decisions, hierarchy_of, inputs
from hierlearn.metrics.metric import Metric
from hierlearn.metrics.rows import Reduction, check_rows, only_where, reduce_rows

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
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
    hierarchy = LabelSpace.of(label_space).hierarchy
    scores, targets = inputs(scores, targets, hierarchy)
    right, counts = level_hits(scores, targets, hierarchy)
    check_rows(len(targets), "level accuracy")
    if not bool(counts.any()):
        raise HierlearnError(
            f"none of the {len(targets)} rows has a label, so there is no level accuracy"
        )
    return right / counts


def level_hits(scores: Tensor, targets: Tensor, hierarchy: Hierarchy) -> tuple[Tensor, Tensor]:
    """Return (L,) float64 right rows and counted rows of each level; inputs are checked already."""
    right, counts = [], []
    for columns in hierarchy.level_slices:
        truth = targets[:, columns]
        right.append(truth.gather(1, best_classes(scores[:, columns])).sum())
        counts.append(truth.any(dim=1).sum())
    return torch.stack(right).double(), torch.stack(counts).double()


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


ENTRIES = (
    Metric(
        "terminal-accuracy",
        terminal_accuracy,
        "fraction of rows whose best terminal class is one of their terminal labels",
        unit="percent",
        module_class="TerminalAccuracy",
        per_row=True,
        of_terminals=True,
    ),
    Metric(
        "leaf-accuracy",
        leaf_accuracy,
        "fraction of rows whose best leaf is positive, of those with a leaf label",
        unit="percent",
        module_class="LeafAccuracy",
        per_row=True,
    ),
    Metric(
        "level-accuracy",
        level_accuracy,
        "fraction of rows whose best class of a level is positive, of those with a label there",
        unit="percent",
        module_class="LevelAccuracy",
        by_level=True,
    ),
    Metric(
        "mean-level",
        mean_predicted_level,
        "mean level of the best class: how specific the predictions are, right or wrong",
        direction="none",
        unit="levels",
        module_class="MeanPredictedLevel",
        limits=lambda h: (1.0, float(h.depth)),
        per_row=True,
    ),
)
