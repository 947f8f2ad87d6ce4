"""The constraint of HCL with scope "levels", where the classes of a level are in several shards.

Every process finds the largest loss of each level among its classes, and all exchange these (N, L)
numbers. As in one process, the gradient belongs to the first maximizer in class order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.hierarchy.exchange import gather

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy.sharded import ShardedHierarchy


def by_levels(losses: Tensor, hierarchy: ShardedHierarchy) -> Tensor:
    """Return (N, S) the maximum of each loss and all those of shallower levels.

    Args:
        losses: (N, S) those of the classes of this process.
        hierarchy: the classes of this process.
    """
    bounds = np.searchsorted(hierarchy.shard.levels, np.arange(1, hierarchy.depth + 2)).tolist()
    parts = list(torch.split(losses, np.diff(bounds).tolist(), dim=1))
    best = best_of_levels(losses, parts, hierarchy)
    peak = best[:, :1]
    for level in range(1, len(parts)):
        parts[level] = torch.where(parts[level] >= peak, parts[level], peak)
        here = best[:, level : level + 1]
        peak = torch.where(here > peak, here, peak)
    return torch.cat(parts, dim=1)


def best_of_levels(losses: Tensor, parts: list[Tensor], hierarchy: ShardedHierarchy) -> Tensor:
    """Return (N, L) the largest loss of each level over all processes, -inf where there is none."""
    rows, nobody = len(losses), torch.iinfo(torch.int64).max
    columns = torch.zeros((rows, len(parts)), dtype=torch.int64, device=losses.device)
    begin = 0
    with torch.no_grad():
        for level, part in enumerate(parts):
            if part.shape[1]:
                columns[:, level] = part.max(dim=1).indices + begin  # the first of several
            begin += part.shape[1]
        filled = torch.tensor([part.shape[1] > 0 for part in parts], device=losses.device)
        numbers = torch.where(filled, hierarchy.classes[columns], nobody)
        numbers = hierarchy.exchange.gather(numbers)  # (world, N, L)
    values = torch.where(filled, losses.gather(1, columns), -torch.inf)
    values = gather(hierarchy.exchange, values)
    with torch.no_grad():
        largest = values == values.amax(dim=0)
        first = torch.where(largest, numbers, nobody).argmin(dim=0)
    return values.gather(0, first[None])[0]
