"""Precision, recall and F of label sets, both sides closed (Kiritchenko et al., 2005).

    P = |A n T| / |A|,    R = |A n T| / |T|,    F = (1 + beta^2) |A n T| / (beta^2 |T| + |A|)

A is what is answered, T the truth, each with all its ancestors, counted

    micro    over all rows and classes together
    macro    a class, then the mean over the classes with a positive row
    samples  a row, then the mean over all rows
    level    a level, over all rows: (L,)

Where nothing is counted, 0 / 0 is 0: a row with neither truth nor answer scores 0, not 1; where
such rows are many, "exact match" tells them from mistakes. A class is its path, so an answer of
``Electronics/Other`` has nothing in common with ``Clothing/Other``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from hierlearn.decoding.chunks import row_chunks
from hierlearn.decoding.decoder import ancestor_sets
from hierlearn.errors import HierlearnError
from hierlearn.metrics.inputs import (
    Reduction,
    as_classes,
    as_targets,
    check_option,
    check_rows,
    reduce_rows,
)

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy

Average = Literal["micro", "macro", "samples", "level"]
Measure = Literal["precision", "recall", "f"]


def hierarchical_precision(
    predicted: Tensor, targets: Tensor, hierarchy: Hierarchy, average: Average = "micro"
) -> Tensor:
    """Return the share of what is answered, closed, that is true.

    Args:
        predicted: (N, C) multi-hot sets, or (N,) class numbers with -1 for the root.
        targets: (N, C) multi-hot.
        hierarchy: the taxonomy.
        average: "micro", "macro", "samples", or "level" for (L,).
    """
    return _measure("precision", predicted, targets, hierarchy, average)


def hierarchical_recall(
    predicted: Tensor, targets: Tensor, hierarchy: Hierarchy, average: Average = "micro"
) -> Tensor:
    """Return the share of the truth, closed, that is answered.

    Args:
        predicted: (N, C) multi-hot sets, or (N,) class numbers with -1 for the root.
        targets: (N, C) multi-hot.
        hierarchy: the taxonomy.
        average: "micro", "macro", "samples", or "level" for (L,).
    """
    return _measure("recall", predicted, targets, hierarchy, average)


def hierarchical_f1(
    predicted: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    average: Average = "micro",
    beta: float = 1.0,
) -> Tensor:
    """Return the F measure, F1 by default.

    Args:
        predicted: (N, C) multi-hot sets, or (N,) class numbers with -1 for the root.
        targets: (N, C) multi-hot.
        hierarchy: the taxonomy.
        average: "micro", "macro", "samples", or "level" for (L,).
        beta: how much more recall weighs than precision.
    """
    return _measure("f", predicted, targets, hierarchy, average, beta)


def exact_match(
    predicted: Tensor, targets: Tensor, hierarchy: Hierarchy, reduction: Reduction = "mean"
) -> Tensor:
    """Return the share of rows whose answer, closed, is the truth; two empty sets match.

    Args:
        predicted: (N, C) multi-hot sets, or (N,) class numbers with -1 for the root.
        targets: (N, C) multi-hot.
        hierarchy: the taxonomy.
        reduction: "mean" over all rows, or "none" for (N,).
    """
    answers, truth = closed_sets(predicted, targets, hierarchy)
    rows = (answers == truth).all(dim=1).double()
    return reduce_rows(rows, reduction, "exact match")


def closed_sets(predicted: Tensor, targets: Tensor, hierarchy: Hierarchy) -> tuple[Tensor, Tensor]:
    """Return answers and truth as (N, C) bool, closed under ancestors."""
    shape = (len(predicted) if predicted.dim() else 0, len(hierarchy))
    if predicted.dim() == 1:
        answers = ancestor_sets(hierarchy, as_classes(predicted, len(hierarchy)))
    else:
        answers = as_targets(predicted, shape, hierarchy, "answers", "rows and classes")
        answers = close(answers, hierarchy)
    truth = as_targets(targets, shape, hierarchy, beside="rows and classes").to(answers.device)
    return answers, close(truth, hierarchy)


def close(sets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (N, C) bool sets with all ancestors."""
    child, parent = (
        torch.tensor(ends, device=sets.device)
        for ends in (hierarchy.structure.edge_children, hierarchy.structure.parent_ids)
    )
    closed = sets.clone()
    for rows in row_chunks(len(sets), max(sets.shape[1], len(child))):
        part = sets[rows]
        if bool((part[:, child] & ~part[:, parent]).any()):  # most are closed already
            closed[rows] = hierarchy.max_up(part.byte()).bool()
    return closed


def class_counts(answers: Tensor, truth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (C,) float64 counts of rows a class: of both, of answers and of truth."""
    both = answers & truth
    return both.sum(0).double(), answers.sum(0).double(), truth.sum(0).double()


def averaged(
    counts: tuple[Tensor, Tensor, Tensor],
    hierarchy: Hierarchy,
    measure: Measure,
    average: Average,
    beta: float = 1.0,
) -> Tensor:
    """Return the measure from ``class_counts``: micro, macro or a level."""
    if average == "micro":
        return ratio(measure, beta, *(x.sum() for x in counts))
    if average == "level":
        levels = (torch.stack([x[c].sum() for c in hierarchy.level_slices]) for x in counts)
        return ratio(measure, beta, *levels)
    positive = counts[2] > 0
    if not bool(positive.any()):
        raise HierlearnError("no class has a positive row, so there is no macro average over them")
    return ratio(measure, beta, *counts)[positive].mean()


def ratio(measure: Measure, beta: float, both: Tensor, answered: Tensor, true: Tensor) -> Tensor:
    """Return precision, recall or F of counts, 0 where nothing is counted."""
    if measure == "precision":
        above, below = both, answered
    elif measure == "recall":
        above, below = both, true
    else:
        above, below = (1 + beta**2) * both, beta**2 * true + answered
    return torch.where(below > 0, above / below, 0.0)


def check_beta(beta: float) -> None:
    """Refuse a beta that is no positive number."""
    if not (math.isfinite(beta) and beta > 0):
        raise HierlearnError(f"beta = {beta} must be a positive number")


def row_ratios(answers: Tensor, truth: Tensor, measure: Measure, beta: float) -> Tensor:
    """Return (N,) float64 the measure of each row."""
    sizes = (x.sum(dim=1).double() for x in (answers & truth, answers, truth))
    return ratio(measure, beta, *sizes)


def _measure(
    measure: Measure,
    predicted: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    average: Average,
    beta: float = 1.0,
) -> Tensor:
    check_option("average", average, Average)
    check_beta(beta)
    answers, truth = closed_sets(predicted, targets, hierarchy)
    check_rows(len(truth), f"hierarchical {'F' if measure == 'f' else measure}")
    if average == "samples":
        return row_ratios(answers, truth, measure, beta).mean()
    return averaged(class_counts(answers, truth), hierarchy, measure, average, beta)
