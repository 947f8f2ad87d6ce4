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


def distances_of(
    queries: Tensor, embeddings: Tensor, numbers: Tensor, distance: str, gathered: int = 1 << 20
) -> Tensor:
    """Return (n, k) the distances of queries to some rows, from differences.

    The distance of a query and a row is the same bit for bit, whatever else is computed with it.

    Args:
        queries: (n, D).
        embeddings: (N, D).
        numbers: (n, k) the numbers of the rows.
        distance: a name of DISTANCES.
        gathered: numbers of the rows that are held at once.
    """
    size = max(1, gathered // max(1, numbers.shape[1] * queries.shape[1]))
    out = queries.new_empty(numbers.shape)
    for query, number, result in zip(
        *(torch.split(one, size) for one in (queries, numbers, out)), strict=True
    ):
        rows = embeddings.index_select(0, number.reshape(-1)).to(queries.dtype)
        rows = rows.view(*number.shape, -1)  # (size, k, D)
        if distance == "cosine":
            rows = torch.nn.functional.normalize(rows, dim=-1)
            rows.mul_(torch.nn.functional.normalize(query, dim=-1)[:, None])
            result.copy_((1 - rows.sum(-1)).clamp_min(0.0))
            continue
        torch.linalg.vector_norm(rows.sub_(query[:, None]), dim=-1, out=result)
        if distance == "euclidean":
            result.clamp_min_(TINY**0.5)
        else:
            result.square_()
    return out
