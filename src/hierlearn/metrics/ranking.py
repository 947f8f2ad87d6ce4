"""Ranking metrics: where in the row's ranking of all classes the positive ones stand.

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

from hierlearn.metrics.inputs import check_count, hierarchy_of, inputs
from hierlearn.metrics.metric import Metric, unit_interval
from hierlearn.metrics.rows import Reduction, by_rows, only_where, reduce_rows

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.metrics.inputs import Scores, Space, Targets


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
    hits = (first_ranks(scores, targets) <= k).double()
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
    reciprocal = first_ranks(scores, targets).double().reciprocal()
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
    rows = only_where(by_rows(_depths, scores, targets), targets.any(dim=1))
    return reduce_rows(rows, reduction, "coverage")


def first_ranks(scores: Tensor, targets: Tensor) -> Tensor:
    """Return (N,) the rank of the first positive class; meaningless for a row without one."""
    return by_rows(_ranks, scores, targets)


def _ranks(scores: Tensor, targets: Tensor) -> Tensor:
    best = scores.masked_fill(~targets, -torch.inf).amax(dim=1, keepdim=True)
    ties = scores == best
    # argmax gives the first of equal values: the first positive class of the best score.
    first = (ties & targets).byte().argmax(dim=1, keepdim=True)
    columns = torch.arange(scores.shape[1], device=scores.device)
    before = (scores > best) | (ties & (columns < first))
    return 1 + before.sum(dim=1)


def _depths(scores: Tensor, targets: Tensor) -> Tensor:
    lowest = scores.masked_fill(~targets, torch.inf).amin(dim=1, keepdim=True)
    return (scores >= lowest).sum(dim=1)


ENTRIES = (
    Metric(
        "hit@1",
        hit_at_k,
        "fraction of rows whose best class is positive",
        unit="percent",
        options={"k": 1},
        module_class="HitAtK",
        per_row=True,
    ),
    Metric(
        "hit@5",
        hit_at_k,
        "fraction of rows with a positive class among the 5 best",
        unit="percent",
        options={"k": 5},
        module_class="HitAtK",
        per_row=True,
        min_candidates=5,
    ),
    Metric(
        "mrr",
        mean_reciprocal_rank,
        "mean of 1 / rank of the first positive class",
        unit="percent",
        module_class="MeanReciprocalRank",
        limits=unit_interval,
        per_row=True,
    ),
    Metric(
        "coverage",
        coverage,
        "how far down the ranking all positive classes lie",
        direction="down",
        unit="rank",
        module_class="Coverage",
        limits=lambda h: (1.0, float(len(h))),
        per_row=True,
    ),
)
