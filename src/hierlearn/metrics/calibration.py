"""Are probabilities calibrated and coherent, and what does stopping early gain?

Expected calibration error: is a class of probability p positive in a fraction p of the cases?

    ECE = sum over bins b of n_b / n * |mean of p in b - fraction of positives in b|

over all entries of a level, in bins of equal width over [0, 1]; a bin contains its lower edge, the
last one also 1 (Naeini et al., 2015). Deep levels have mostly p near 0 that is right, which makes
their error small; compare a level with itself.

Coherence: how often a class is more probable than its parent.

violations(i) = the number of edges (parent a, child c) with p(i, c) > p(i, a) + tolerance

The operating curve of ``Stop``: what is gained and lost as its threshold moves.

The decoder walks the greedy chain c_1, c_2, ... and stays at the last class before which, and at
which, p exceeds the threshold t. With m_j the smallest p of c_1..c_j that is the class numbered

    a(t) = #{j : m_j > t},    0 for the root.

So whatever depends on the answer alone, f(c_a), is a sum over the steps that are taken,

    f(root) + sum over j of (f(c_j) - f(c_(j-1))) [m_j > t],

and one sort of all m answers every threshold: the chain is walked once, not once per threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hierlearn.decoding.classes import greedy_chain
from hierlearn.decoding.decoder import check_closed, most_specific
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_chunks
from hierlearn.metrics.inputs import (
    Reduction,
    as_probabilities,
    as_targets,
    check_rows,
    is_integer,
    reduce_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.metrics.inputs import Scores, Space, Targets

BINS = 15


def calibration_error(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    *,
    bins: int = BINS,
    pooled: bool = False,
) -> Tensor:
    """Return (L,) the expected calibration error of each level.

    Args:
        probabilities: (N, C) in [0, 1].
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy.
        bins: the number of bins.
        pooled: return one number, over the entries of all levels together.
    """
    return bin_value(bin_sums(probabilities, targets, label_space, bins=bins), pooled=pooled)


def bin_sums(
    probabilities: Scores, targets: Targets, label_space: Space, *, bins: int = BINS
) -> Tensor:
    """Return (2, L, bins) float64: sums of p - y, and counts, of the entries in each bin."""
    if not is_integer(bins) or bins < 1:
        raise HierlearnError(f"bins = {bins!r} must be an integer of at least 1")
    hierarchy = LabelSpace.of(label_space).hierarchy
    p = as_probabilities(probabilities, hierarchy)
    targets = as_targets(targets, p.shape, hierarchy, beside="probabilities").to(p.device)
    offset = torch.tensor(hierarchy.levels - 1, device=p.device) * bins  # (C,)
    size = hierarchy.depth * bins
    sums = torch.zeros((2, size), dtype=torch.float64, device=p.device)
    for rows in row_chunks(*p.shape):
        part = p[rows].double()
        place = (bin_of(part, bins) + offset).reshape(-1)
        sums[0] += torch.bincount(place, (part - targets[rows].double()).reshape(-1), size)
        sums[1] += torch.bincount(place, minlength=size)
    return sums.reshape(2, -1, bins)


def bin_value(sums: Tensor, *, pooled: bool = False) -> Tensor:
    """Return the error from ``bin_sums``: n_b |mean p - fraction| is |sum of p - y|."""
    excess, counts = sums.unbind()
    check_rows(int(counts.sum()), "calibration error")
    if pooled:
        return excess.sum(dim=0).abs().sum() / counts.sum()
    return excess.abs().sum(dim=1) / counts.sum(dim=1)


def bin_of(p: Tensor, bins: int = BINS) -> Tensor:
    """Return the bin of each probability; a bin contains its lower edge, the last one also 1."""
    edges = torch.arange(1, bins, dtype=torch.float64, device=p.device) / bins
    return torch.bucketize(p.double().contiguous(), edges, right=True)


def binned_error(p: Tensor, right: Tensor, bins: int = BINS) -> Tensor:
    """Return the expected calibration error of (M,) probabilities, NaN without any."""
    excess = torch.zeros(bins, dtype=torch.float64, device=p.device)
    excess.index_add_(0, bin_of(p, bins), p.double() - right.double())
    return excess.abs().sum() / len(p) if len(p) else excess.new_tensor(torch.nan)


# ---------------------------------------- coherence


def coherence_violations(
    probabilities: Scores,
    label_space: Space,
    *,
    tolerance: float = 1e-6,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the number of edges per row whose child is more probable than the parent.

    Args:
        probabilities: (N, C) in [0, 1].
        label_space: the taxonomy.
        tolerance: by how much a child may exceed its parent without being counted.
        reduction: "mean" over the rows, or "none" for (N,).
    """
    if not tolerance >= 0:
        raise HierlearnError(f"tolerance = {tolerance} must be 0 or more")
    hierarchy = LabelSpace.of(label_space).hierarchy
    p = as_probabilities(probabilities, hierarchy)
    child, parent = (
        torch.tensor(ends, device=p.device)
        for ends in (hierarchy.structure.edge_children, hierarchy.structure.parent_ids)
    )
    parts = []
    for rows in row_chunks(len(p), len(child)):
        part = p[rows].double()
        parts.append((part[:, child] > part[:, parent] + tolerance).sum(dim=1).double())
    return reduce_rows(torch.cat(parts), reduction, "coherence violations")


def violations(
    probabilities: Scores,
    _: Any,
    label_space: Space,
    *,
    tolerance: float = 1e-6,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the edges per row whose child exceeds its parent; targets are not used."""
    return coherence_violations(
        probabilities, label_space, tolerance=tolerance, reduction=reduction
    )


# ---------------------------------------- operating

POINTS = 101  # thresholds by default: 0, 0.01, ..., 1


@dataclass(frozen=True)
class OperatingCurve:
    """What ``Stop`` gives at each of T thresholds; every entry is (T,) float64.

    Attributes:
        thresholds: the thresholds, as given.
        accuracy: the fraction of rows whose answer lies in the closure; the root is always right.
        specificity: the mean level of the answers over the mean level of the truth, the deepest
            label of a row; the root is of level 0, and so is a row without labels.
        answered: the fraction of rows that are not answered by the root.
        exact: the fraction of rows whose answer is one of their terminal labels.
    """

    thresholds: Tensor
    accuracy: Tensor
    specificity: Tensor
    answered: Tensor
    exact: Tensor


def operating_curve(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    thresholds: Sequence[float] | Tensor | None = None,
) -> OperatingCurve:
    """Return accuracy against specificity as the threshold of ``Stop`` moves.

    Args:
        probabilities: (N, C) in [0, 1].
        targets: (N, C) closed multi-hot, or labels; every row counts, and one without labels
            contains only the root.
        label_space: the taxonomy, a tree or a DAG.
        thresholds: (T,) in [0, 1], in any order; by default 0, 0.01, ..., 1. They are compared in
            the precision of the probabilities, as the decoder does.
    """
    space = LabelSpace.of(label_space)
    hierarchy = space.hierarchy
    p = as_probabilities(probabilities, hierarchy)
    targets = as_targets(targets, p.shape, hierarchy, beside="probabilities").to(p.device)
    check_closed(targets, hierarchy)
    check_rows(len(p), "operating curve")
    if thresholds is None:
        thresholds = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    thresholds = torch.as_tensor(thresholds, dtype=torch.float64, device=p.device)
    if thresholds.dim() != 1 or not len(thresholds):
        raise HierlearnError(f"thresholds {tuple(thresholds.shape)} must be (T,), at least one")
    outside = thresholds[~((thresholds >= 0) & (thresholds <= 1))]
    if len(outside):
        raise HierlearnError(f"threshold {outside[0].item():g} is outside [0, 1]")
    levels = torch.tensor(hierarchy.levels, device=p.device)
    depth = (targets * levels).amax(dim=1).double().mean()
    if not bool(depth > 0):
        raise HierlearnError(f"none of the {len(p)} rows has a label, so there is no specificity")
    chain = greedy_chain(p, space)  # (N, D)
    taken = chain >= 0
    place = chain.clamp_min(0)
    lowest = p.gather(1, place).masked_fill(~taken, -1.0).cummin(dim=1).values  # m_j; -1 > t never
    order = lowest.reshape(-1).argsort()
    ordered = lowest.reshape(-1)[order]
    first = torch.searchsorted(ordered, thresholds.to(p.dtype), side="right")  # the first m > t

    def mean_of(root: float, values: Tensor) -> Tensor:
        """Return (T,) the mean over rows of f: ``root`` at the root, (N, D) ``values`` along it."""
        steps = values.double().diff(dim=1, prepend=values.new_full((len(p), 1), root).double())
        total = steps.reshape(-1)[order].flip(0).cumsum(0).flip(0)
        total = torch.cat([total, total.new_zeros(1)])
        return root + total[first] / len(p)

    return OperatingCurve(
        thresholds=thresholds,
        accuracy=mean_of(1.0, targets.gather(1, place).double()),
        specificity=mean_of(0.0, levels[place].double()) / depth,
        answered=mean_of(0.0, torch.ones_like(chain).double()),
        exact=mean_of(0.0, most_specific(targets, hierarchy).gather(1, place).double()),
    )
