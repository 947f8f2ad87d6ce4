"""Shards: how an epoch shares out row groups among processes, so that each reads only its own.

The row groups are shuffled by seed and epoch and laid end to end. With S processes and batches of
n_b rows, place p of a batch belongs to process p mod S, so that process s takes

    Q_s = sum over batches b of |{s, s + S, s + 2S, ...} below n_b|

rows in an epoch: those from Q_0 + ... + Q_{s-1} on. Every row is taken once, all processes take the
same number of steps, and only a group across a border is read by two processes, in part by each.

A process joins its groups to windows of at most ``window`` rows and shuffles the rows of each
window. With one process and a window of all rows, that is the order of rows in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from hierlearn.training.seeding import generator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.training.processes import Processes
    from hierlearn.training.stream import ParquetRows


class Piece(NamedTuple):
    """Consecutive rows of one row group.

    Attributes:
        group: its number.
        begin, end: the first row, and the one after the last.
    """

    group: int
    begin: int
    end: int


def share_count(rows: int, shard: int, shards: int) -> int:
    """Return how many rows of a batch belong to a shard."""
    return len(range(shard, rows, shards))


def quota(rows: int, size: int, shard: int, shards: int) -> int:
    """Return how many rows of an epoch with batches of ``size`` belong to a shard."""
    full, last = divmod(rows, size)
    return full * share_count(size, shard, shards) + share_count(last, shard, shards)


def pieces_between(
    groups: Sequence[int], bounds: NDArray[np.int64], begin: int, end: int
) -> list[Piece]:
    """Return the rows from place ``begin`` to ``end`` of groups that are laid end to end.

    Args:
        groups: in their order.
        bounds: (G + 1,) where the rows of each group begin.
        begin: the first place.
        end: the place after the last.
    """
    found, place = [], 0
    for group in groups:
        first, last = int(bounds[group]), int(bounds[group + 1])
        low, high = max(begin - place, 0), min(end - place, last - first)
        if low < high:
            found.append(Piece(group, first + low, first + high))
        place += last - first
    return found


def cut(pieces: Sequence[Piece], bounds: NDArray[np.int64], window: int) -> Iterator[list[Piece]]:
    """Join pieces to windows; a piece takes the memory of its whole group.

    Args:
        pieces: in their order.
        bounds: (G + 1,) where the rows of each group begin.
        window: the most rows of the groups of a window, unless there is one group only.
    """
    taken: list[Piece] = []
    rows = 0
    for piece in pieces:
        count = int(bounds[piece.group + 1] - bounds[piece.group])
        if taken and rows + count > window:
            yield taken
            taken, rows = [], 0
        taken.append(piece)
        rows += count
    if taken:
        yield taken


class ShardOrder:
    """The order in which one shard reads its rows in an epoch, made window by window.

    Args:
        rows: the rows in their files.
        seed: of the member whose order it is.
        epoch: the number of the epoch, from 0.
        size: the rows of a batch of all shards together.
        shard: the number of the shard.
        shards: how many there are.
    """

    def __init__(
        self, rows: ParquetRows, seed: int, epoch: int, size: int, shard: int = 0, shards: int = 1
    ) -> None:
        self.seed, self.epoch, self.size = seed, epoch, size
        self.shard, self.shards, self.total = shard, shards, len(rows)
        counts = np.diff(rows.bounds)
        groups = torch.randperm(len(counts), generator=generator(seed, "row groups", epoch))
        quotas = [quota(self.total, size, one, shards) for one in range(shard + 1)]
        begin, end = sum(quotas[:-1]), sum(quotas)
        pieces = pieces_between(groups.tolist(), rows.bounds, begin, end)
        self.windows = list(cut(pieces, rows.bounds, rows.source.window))
        sizes = [sum(piece.end - piece.begin for piece in window) for window in self.windows]
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.touched = range(0)  # the windows of the last batch
        self._last: tuple[int, Tensor] = (-1, torch.zeros(0, dtype=torch.int64))

    def batch(self, place: int) -> Tensor:
        """Return the rows of this shard in a batch."""
        begin = place * share_count(self.size, self.shard, self.shards)
        count = min(self.size, self.total - place * self.size)
        end = begin + share_count(count, self.shard, self.shards)
        if begin == end:  # the last batch may have fewer rows than there are shards
            return torch.zeros(0, dtype=torch.int64)
        first, last = np.searchsorted(self.starts, [begin, end - 1], side="right").tolist()
        self.touched = range(first - 1, last)
        parts = []
        for number in self.touched:
            start, stop = self.starts[number : number + 2].tolist()
            parts.append(self.window(number)[max(begin - start, 0) : min(end, stop) - start])
        return torch.cat(parts)

    def window(self, number: int) -> Tensor:
        """Return the rows of a window, shuffled by seed, epoch, shard and window alone."""
        if self._last[0] != number:
            pieces = sorted(self.windows[number])
            rows = torch.cat([torch.arange(one.begin, one.end) for one in pieces])
            purpose = "order"  # of rows in memory
            if number or self.shards > 1:
                purpose = f"order of window {number}, shard {self.shard} of {self.shards}"
            drawn = torch.randperm(len(rows), generator=generator(self.seed, purpose, self.epoch))
            self._last = (number, rows[drawn])
        return self._last[1]

    def groups(self, windows: range) -> set[int]:
        """Return the row groups of some windows; none beyond the last."""
        some = self.windows[windows.start : windows.stop]
        return {piece.group for window in some for piece in window}


class StreamedBatches:
    """The batches of an epoch whose rows stay in their files.

    Args:
        rows: the rows in their files.
        seeds: of the members.
        epoch: the number of the epoch, from 0.
        size: the rows of a batch of all processes together.
        here: this process among all of them.
        shards: among how many processes the row groups are shared out. Where that is another
            number than there are, the batches are the same, but read by all processes.
    """

    def __init__(
        self,
        rows: ParquetRows,
        seeds: Sequence[int],
        epoch: int,
        size: int,
        here: Processes,
        shards: int,
    ) -> None:
        self.rows, self.size, self.here, self.shards = rows, size, here, shards
        self.epoch, self.seeds = epoch, list(seeds)
        own = [here.rank] if shards == here.world else list(range(shards))
        self.own = {(seed, shard): self._order(seed, shard) for seed in seeds for shard in own}

    def _order(self, seed: int, shard: int) -> ShardOrder:
        return ShardOrder(self.rows, seed, self.epoch, self.size, shard, self.shards)

    def whole(self, place: int) -> Tensor:
        """Return (M, n) the rows of a batch, for each of M members."""
        count = min(self.size, len(self.rows) - place * self.size)
        found = torch.empty(len(self.seeds), count, dtype=torch.int64)
        for member, seed in enumerate(self.seeds):
            for shard in range(self.shards):
                order = self.own.get((seed, shard)) or self._order(seed, shard)
                found[member, shard :: self.shards] = order.batch(place)
        return found

    def share(self, place: int) -> Tensor:
        """Return (M, n) those rows of a batch that this process computes; read the next ahead."""
        before = [order.touched for order in self.own.values()]
        if self.shards == self.here.world:
            rank = self.here.rank
            found = torch.stack([self.own[seed, rank].batch(place) for seed in self.seeds])
        else:
            found = self.here.share(self.whole(place))
        orders = self.own.values()
        if before != [order.touched for order in orders]:
            now = {group for order in orders for group in order.groups(order.touched)}
            ahead = {
                group
                for order in orders
                for group in order.groups(range(order.touched.stop, order.touched.stop + 1))
            }
            self.rows.cache.expect(now, ahead)
        return found
