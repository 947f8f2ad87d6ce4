"""Distances between embeddings.

    squared     |a - b|^2
    euclidean   |a - b|
    cosine      1 - a b / (|a| |b|)

All are computed from the inner products of one matmul; squared and Euclidean order rows alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

TINY = 1e-12  # below the square root of a distance, where its derivative would be infinite


def squared(a: Tensor, b: Tensor) -> Tensor:
    """Return (..., n, m) the squared Euclidean distances of (..., n, D) and (..., m, D)."""
    inner = a @ b.transpose(-1, -2)
    lengths = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
    return (lengths - 2 * inner).clamp_min(0.0)


def euclidean(a: Tensor, b: Tensor) -> Tensor:
    """Return (..., n, m) the Euclidean distances."""
    return squared(a, b).clamp_min(TINY).sqrt()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Return (..., n, m) one minus the cosines; 1 where a row is all 0."""
    a, b = (torch.nn.functional.normalize(one, dim=-1) for one in (a, b))
    return (1 - a @ b.transpose(-1, -2)).clamp_min(0.0)


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": squared,
    "euclidean": euclidean,
    "cosine": cosine,
}


def find_distance(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a distance by name."""
    if name not in DISTANCES:
        raise HierlearnError(unknown_name("distance", name, DISTANCES))
    return DISTANCES[name]
