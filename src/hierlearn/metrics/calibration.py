"""Expected calibration error: do classes given p come true in a share p of the cases?

    ECE = sum over bins b of n_b / n * |mean of p in b - share of positives in b|

over all entries of a level, in bins of equal width over [0, 1]; a bin holds its lower edge, the
last one 1 too (Naeini et al., 2015). Deep levels have mostly p near 0 that is right, which makes
their error small; compare a level with itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hierlearn.decoding.chunks import row_chunks
from hierlearn.errors import HierlearnError
from hierlearn.metrics.inputs import as_probabilities, as_targets, check_rows, is_whole

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy


def calibration_error(
    probabilities: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    bins: int = 15,
    pooled: bool = False,
) -> Tensor:
    """Return (L,) the expected calibration error of each level.

    Args:
        probabilities: (N, C) in [0, 1].
        targets: (N, C) closed multi-hot.
        hierarchy: the taxonomy.
        bins: the number of bins.
        pooled: return one number, over the entries of all levels together.
    """
    excess, counts = bin_sums(probabilities, targets, hierarchy, bins)
    check_rows(len(targets), "calibration error")
    return from_bins(excess, counts, pooled)


def bin_sums(
    probabilities: Tensor, targets: Tensor, hierarchy: Hierarchy, bins: int
) -> tuple[Tensor, Tensor]:
    """Return (L, bins) float64 sums of p - y, and counts, of the entries in each bin."""
    check_bins(bins)
    p = as_probabilities(probabilities, hierarchy)
    targets = as_targets(targets, p.shape, hierarchy, beside="probabilities").to(p.device)
    edges = torch.arange(1, bins, dtype=torch.float64, device=p.device) / bins
    offset = torch.tensor(hierarchy.levels - 1, device=p.device) * bins  # (C,)
    size = hierarchy.depth * bins
    excess = torch.zeros(size, dtype=torch.float64, device=p.device)
    counts = torch.zeros_like(excess)
    for rows in row_chunks(*p.shape):
        part = p[rows].double()
        place = (torch.bucketize(part, edges, right=True) + offset).reshape(-1)
        excess += torch.bincount(place, (part - targets[rows].double()).reshape(-1), size)
        counts += torch.bincount(place, minlength=size)
    return excess.reshape(-1, bins), counts.reshape(-1, bins)


def from_bins(excess: Tensor, counts: Tensor, pooled: bool) -> Tensor:
    """Return the error from ``bin_sums``: n_b |mean p - share| is |sum of p - y|."""
    if pooled:
        return excess.sum(dim=0).abs().sum() / counts.sum()
    return excess.abs().sum(dim=1) / counts.sum(dim=1)


def check_bins(bins: int) -> None:
    """Refuse a number of bins below 1."""
    if not is_whole(bins) or bins < 1:
        raise HierlearnError(f"bins = {bins!r} must be a whole number of at least 1")
