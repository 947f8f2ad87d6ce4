"""Rows of values: (N,) float64, one value per row, NaN where a row does not count; their mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.structure import row_chunks
from hierlearn.metrics.inputs import check_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

Reduction = Literal["mean", "none"]


def by_rows(run: Callable[[Tensor, Tensor], Tensor], scores: Tensor, targets: Tensor) -> Tensor:
    """Apply a row-wise function to a chunk of rows at a time, so that temporaries stay small."""
    spans = row_chunks(*scores.shape)
    return torch.cat([run(scores[rows], targets[rows]) for rows in spans])


def check_rows(count: int, metric: str) -> None:
    """Raise for a test set without rows."""
    if not count:
        raise HierlearnError(f"there are no rows: an empty test set has no {metric}")


def only_where(values: Tensor, counts: Tensor) -> Tensor:
    """Return (N,) float64 values, NaN in the rows that do not count."""
    return torch.where(counts, values.double(), torch.nan)


def reduce_rows(rows: Tensor, reduction: Reduction, metric: str, need: str = "a label") -> Tensor:
    """Return the rows, or the mean of those that count.

    Args:
        rows: (N,) float64, NaN where a row does not count.
        reduction: "mean" or "none".
        metric: the name of the metric, for errors.
        need: what a row needs to count, for errors.
    """
    check_option("reduction", reduction, Reduction)
    if reduction == "none":
        return rows
    check_rows(len(rows), metric)
    counted = rows[~rows.isnan()]
    if not len(counted):
        raise HierlearnError(f"none of the {len(rows)} rows has {need}, so there is no {metric}")
    return counted.mean()
