"""Expected calibration error: is a class of probability p positive in a fraction p of the cases?

    ECE = sum over bins b of n_b / n * |mean of p in b - fraction of positives in b|

over all entries of a level, in bins of equal width over [0, 1]; a bin contains its lower edge, the
last one also 1 (Naeini et al., 2015). Deep levels have mostly p near 0 that is right, which makes
their error small; compare a level with itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_chunks
from hierlearn.metrics.inputs import as_probabilities, as_targets, is_integer
from hierlearn.metrics.metric import Metric, unit_interval
from hierlearn.metrics.rows import check_rows

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.metrics.inputs import Scores, Space, Targets


def calibration_error(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    *,
    bins: int = 15,
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
    hierarchy = LabelSpace.of(label_space).hierarchy
    excess, counts = bin_sums(probabilities, targets, hierarchy, bins)
    check_rows(int(counts.sum()), "calibration error")
    return from_bins(excess, counts, pooled)


def bin_sums(
    probabilities: Scores, targets: Targets, hierarchy: Hierarchy, bins: int
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
        place = (torch.bucketize(part.contiguous(), edges, right=True) + offset).reshape(-1)
        excess += torch.bincount(place, (part - targets[rows].double()).reshape(-1), size)
        counts += torch.bincount(place, minlength=size)
    return excess.reshape(-1, bins), counts.reshape(-1, bins)


def from_bins(excess: Tensor, counts: Tensor, pooled: bool) -> Tensor:
    """Return the error from ``bin_sums``: n_b |mean p - fraction| is |sum of p - y|."""
    if pooled:
        return excess.sum(dim=0).abs().sum() / counts.sum()
    return excess.abs().sum(dim=1) / counts.sum(dim=1)


def check_bins(bins: int) -> None:
    """Raise for a number of bins below 1."""
    if not is_integer(bins) or bins < 1:
        raise HierlearnError(f"bins = {bins!r} must be an integer of at least 1")


ENTRIES = (
    Metric(
        "calibration-error",
        calibration_error,
        "expected calibration error of each level",
        direction="down",
        module_class="CalibrationError",
        limits=unit_interval,
        takes="probabilities",
        by_level=True,
    ),
)
