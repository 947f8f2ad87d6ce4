"""Precision, recall and F of label sets, both sides closed (Kiritchenko et al., 2005).

    P = |A n T| / |A|,    R = |A n T| / |T|,    F = (1 + beta^2) |A n T| / (beta^2 |T| + |A|)

A is what is answered, T the truth, each with all its ancestors, counted

    micro    over all rows and classes together
    macro    per class, then the mean over the classes with a positive row
    samples  per row, then the mean over all rows
    level    per level, over all rows: (L,)

Where nothing is counted, 0 / 0 is 0: a row with neither truth nor answer scores 0, not 1; where
such rows are many, "exact match" tells them from mistakes. A class is its path, so an answer of
``Electronics/Other`` has nothing in common with ``Clothing/Other``. With a ``threshold`` the
functions take probabilities, and the sets are those of the decoder ``Coherent``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, cast

import torch

from hierlearn.decoding.decoder import ancestor_sets
from hierlearn.decoding.sets import Coherent
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_chunks
from hierlearn.metrics.inputs import (
    Reduction,
    as_classes,
    as_targets,
    check_option,
    check_rows,
    encoded,
    read_labels,
    reduce_rows,
)

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.metrics.inputs import Predicted, Scores, Space, Targets

Average = Literal["micro", "macro", "samples", "level"]
Measure = Literal["precision", "recall", "f"]


def hierarchical_precision(
    predicted: Predicted,
    targets: Targets,
    label_space: Space,
    *,
    average: Average = "micro",
    threshold: float | None = None,
) -> Tensor:
    """Return the fraction of what is answered, closed, that is true.

    Args:
        predicted: (N, C) multi-hot sets; (N,) class numbers, -1 for the root; labels; or, with a
            threshold, (N, C) probabilities.
        targets: (N, C) multi-hot, or labels.
        label_space: the taxonomy.
        average: "micro", "macro", "samples", or "level" for (L,).
        threshold: the smallest p of a class in a set, where probabilities are given.
    """
    sums = set_sums("precision", predicted, targets, label_space, average, threshold)
    return set_value("precision", sums, average)


def hierarchical_recall(
    predicted: Predicted,
    targets: Targets,
    label_space: Space,
    *,
    average: Average = "micro",
    threshold: float | None = None,
) -> Tensor:
    """Return the fraction of the truth, closed, that is answered.

    Args:
        predicted: (N, C) multi-hot sets; (N,) class numbers, -1 for the root; labels; or, with a
            threshold, (N, C) probabilities.
        targets: (N, C) multi-hot, or labels.
        label_space: the taxonomy.
        average: "micro", "macro", "samples", or "level" for (L,).
        threshold: the smallest p of a class in a set, where probabilities are given.
    """
    sums = set_sums("recall", predicted, targets, label_space, average, threshold)
    return set_value("recall", sums, average)


def hierarchical_f1(
    predicted: Predicted,
    targets: Targets,
    label_space: Space,
    *,
    average: Average = "micro",
    beta: float = 1.0,
    threshold: float | None = None,
) -> Tensor:
    """Return the F measure, F1 by default.

    Args:
        predicted: (N, C) multi-hot sets; (N,) class numbers, -1 for the root; labels; or, with a
            threshold, (N, C) probabilities.
        targets: (N, C) multi-hot, or labels.
        label_space: the taxonomy.
        average: "micro", "macro", "samples", or "level" for (L,).
        beta: how much more recall weighs than precision.
        threshold: the smallest p of a class in a set, where probabilities are given.
    """
    sums = set_sums("f", predicted, targets, label_space, average, threshold, beta)
    return set_value("f", sums, average, beta)


def exact_match(
    predicted: Predicted,
    targets: Targets,
    label_space: Space,
    *,
    threshold: float | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the fraction of rows whose answer, closed, is the truth; two empty sets match.

    Args:
        predicted: (N, C) multi-hot sets; (N,) class numbers, -1 for the root; labels; or, with a
            threshold, (N, C) probabilities.
        targets: (N, C) multi-hot, or labels.
        label_space: the taxonomy.
        threshold: the smallest p of a class in a set, where probabilities are given.
        reduction: "mean" over all rows, or "none" for (N,).
    """
    answers, truth = answered_sets(predicted, targets, label_space, threshold)
    rows = (answers == truth).all(dim=1).double()
    return reduce_rows(rows, reduction, "exact match")


def answered_sets(
    predicted: Predicted, targets: Targets, label_space: Space, threshold: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return answers and truth as (N, C) bool, closed under ancestors.

    Args:
        predicted: sets, class numbers or labels; with a threshold, probabilities.
        targets: (N, C) multi-hot, or labels.
        label_space: the taxonomy.
        threshold: of the decoder ``Coherent``.
    """
    space = LabelSpace.of(label_space)
    hierarchy = space.hierarchy
    if threshold is not None:
        answers = Coherent(space, threshold)(cast("Scores", predicted))
        shape = tuple(answers.shape)
    else:
        given = read_labels(predicted, hierarchy, "answers")
        if not isinstance(given, torch.Tensor):
            given = encoded(given, hierarchy, "answers")
        shape = (len(given) if given.dim() else 0, len(hierarchy))
        if given.dim() == 1:
            answers = ancestor_sets(space, as_classes(given, hierarchy=hierarchy))
        else:
            answers = as_targets(given, shape, hierarchy, "answers", "rows and classes")
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


def set_sums(
    measure: Measure,
    predicted: Predicted,
    targets: Targets,
    label_space: Space,
    average: Average,
    threshold: float | None = None,
    beta: float = 1.0,
) -> Tensor:
    """Return what ``set_value`` reads, float64 sums over rows that add up over batches.

    Returns:
        (4, K): how often classes are answered and true, answered, and true, of all classes
        together, per level or per class, as ``average`` says, and the number of rows. Of
        "samples" the first is the sum of the measure over rows.
    """
    check_option("average", average, Average)
    if not (math.isfinite(beta) and beta > 0):
        raise HierlearnError(f"beta = {beta} must be a positive number")
    answers, truth = answered_sets(predicted, targets, label_space, threshold)
    parts = torch.stack([answers & truth, answers, truth])  # (3, N, C)
    if average == "samples":
        sums = parts.sum(dim=2).double()
        sums[0] = ratio(measure, beta, *sums)
        sums = sums.sum(dim=1, keepdim=True)
    else:
        sums = parts.sum(dim=1).double()  # (3, C)
    if average == "micro":
        sums = sums.sum(dim=1, keepdim=True)
    elif average == "level":
        slices = LabelSpace.of(label_space).hierarchy.level_slices
        sums = torch.stack([sums[:, columns].sum(dim=1) for columns in slices], dim=1)
    return torch.cat([sums, torch.full_like(sums[:1], len(truth))])


def set_value(measure: Measure, sums: Tensor, average: Average, beta: float = 1.0) -> Tensor:
    """Return the measure from ``set_sums``."""
    both, answered, true, rows = sums.unbind()
    check_rows(int(rows[0]), f"hierarchical {'F' if measure == 'f' else measure}")
    if average == "samples":
        return both[0] / rows[0]
    found = ratio(measure, beta, both, answered, true)
    if average == "micro":
        return found[0]
    if average == "level":
        return found
    if not bool((true > 0).any()):
        raise HierlearnError("no class has a positive row, so there is no macro average over them")
    return found[true > 0].mean()


def ratio(measure: Measure, beta: float, both: Tensor, answered: Tensor, true: Tensor) -> Tensor:
    """Return precision, recall or F of counts, 0 where nothing is counted."""
    if measure == "precision":
        above, below = both, answered
    elif measure == "recall":
        above, below = both, true
    else:
        above, below = (1 + beta**2) * both, beta**2 * true + answered
    return torch.where(below > 0, above / below, 0.0)
