"""Search of a memory in several parts: the k nearest of each part, then the k nearest of these.

    nearest_in_shards   parts in one process
    ShardedSearch       one part per process of a torch.distributed group

Distances, rows and the choice among equally near rows are those of one search of all rows, bit for
bit (see ``ties``). Processes exchange k distances and k row numbers per query, never embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from hierlearn.errors import HierlearnError
from hierlearn.memory.search import nearest
from hierlearn.memory.ties import merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def nearest_in_shards(
    queries: Tensor, shards: Sequence[Tensor], k: int, distance: str = "squared"
) -> tuple[Tensor, Tensor]:
    """Return what ``nearest`` does for the rows of all shards one after another.

    Args:
        queries: (n, D), or (M, n, D) for the members of an ensemble.
        shards: (N_i, D), or (M, N_i, D), each.
        k: how many rows; all where there are fewer.
        distance: a name of DISTANCES.
    """
    found, first = [], 0
    for shard in shards:
        found.append(nearest(queries, shard, k, distance, first=first))
        first += shard.shape[-2]
    return merge(found, k)


@dataclass(frozen=True)
class Part:
    """Which of consecutive rows this process holds.

    Attributes:
        rank: the number of the process.
        world: how many processes there are.
        group: those of torch.distributed; None for all.
    """

    rank: int
    world: int
    group: Any = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise HierlearnError(f"rank {self.rank} must be below {self.world}, and at least 0")

    def bounds(self, total: int) -> tuple[int, int]:
        """Return the first row of this process, and the row after its last one."""
        return self.rank * total // self.world, (self.rank + 1) * total // self.world


@dataclass(frozen=True)
class ShardedSearch:
    """The rows of a memory, split over the processes of a group.

    Every process must ask for the same queries, in the same order.

    Attributes:
        embeddings: (n, D) or (M, n, D), the rows of this process.
        total: how many rows all processes have together.
        part: which of them are here.

    Example:
        In each of several processes, with the same ``embeddings`` and ``queries``:

        >>> part = Part(distributed.get_rank(), distributed.get_world_size())  # doctest: +SKIP
        >>> begin, end = part.bounds(len(embeddings))  # doctest: +SKIP
        >>> search = ShardedSearch(embeddings[begin:end], len(embeddings), part)  # doctest: +SKIP
        >>> distances, rows = search(queries, k=10)  # doctest: +SKIP
    """

    embeddings: Tensor
    total: int
    part: Part

    def __post_init__(self) -> None:
        begin, end = self.part.bounds(self.total)
        if self.embeddings.shape[-2] != end - begin:
            raise HierlearnError(
                f"embeddings {tuple(self.embeddings.shape)} must have {end - begin} rows, those of "
                f"process {self.part.rank} of {self.part.world} with {self.total} rows in all"
            )

    def __call__(self, queries: Tensor, k: int, distance: str = "squared") -> tuple[Tensor, Tensor]:
        """Return what ``nearest`` returns for all rows, in every process.

        Args:
            queries: (n, D), or (M, n, D) for the members of an ensemble.
            k: how many rows; all where there are fewer.
            distance: a name of DISTANCES.
        """
        begin, _ = self.part.bounds(self.total)
        values, rows = nearest(queries, self.embeddings, k, distance, first=begin)
        if self.part.world == 1:
            return values, rows
        k = min(k, self.total)
        lacking = (0, k - values.shape[-1])
        values = torch.nn.functional.pad(values, lacking, value=torch.inf)
        rows = torch.nn.functional.pad(rows, lacking, value=-1)
        parts = zip(self._gathered(values), self._gathered(rows), strict=True)
        values, rows = merge(list(parts), k)
        empty = rows < 0  # where a query is not finite, nothing is nearer than an empty place
        return values.masked_fill(empty, torch.nan), rows.clamp_min(0)

    def _gathered(self, mine: Tensor) -> list[Tensor]:
        """Return a tensor of every process, by rank."""
        mine = mine.contiguous()
        found = [torch.empty_like(mine) for _ in range(self.part.world)]
        distributed.all_gather(found, mine, group=self.part.group)
        return found
