"""Search: the nearest remembered rows."""

from __future__ import annotations

import torch
from torch import Tensor

from hierlearn.memory.distance import find_distance


@torch.no_grad()
def nearest(
    queries: Tensor, embeddings: Tensor, k: int, distance: str = "squared"
) -> tuple[Tensor, Tensor]:
    """Return (..., n, k) the distances to the nearest rows, ascending, and their row numbers.

    Args:
        queries: (n, D), or (M, n, D) of members.
        embeddings: (N, D), or (M, N, D) of members.
        k: how many rows; all where there are fewer.
        distance: a name of DISTANCES.
    """
    found = find_distance(distance)(queries, embeddings.to(queries.dtype))
    best = found.topk(min(k, found.shape[-1]), largest=False)
    return best.values, best.indices
