"""ShardColumns: tensors with one column per class, of which every process holds its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.files.tensors import Streamed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from hierlearn.hierarchy.exchange import Exchange
    from hierlearn.hierarchy.shards import Shards

BLOCK = 1 << 20  # entries of all classes that are exchanged at a time


class ShardColumns:
    """The columns of the classes of one process, and how to put those of all together.

    Args:
        shards: all classes.
        exchange: the processes.
    """

    def __init__(self, shards: Shards, exchange: Exchange) -> None:
        self.exchange = exchange
        self.count = len(shards.label_space)
        parts = [shards.shard(rank) for rank in range(exchange.world)]
        self.classes = [torch.tensor(one.classes[one.counted]) for one in parts]
        here = parts[exchange.rank]
        self.own_classes = torch.tensor(here.classes)
        self.counted = torch.tensor(here.counted).nonzero()[:, 0]
        self.widest = max(len(one) for one in self.classes)

    def own(self, whole: Tensor) -> Tensor:
        """Return a copy of the columns of this process, of (..., C)."""
        return whole.index_select(-1, self.own_classes.to(whole.device))

    def whole(self, own: Tensor) -> Tensor:
        """Return (..., C) the columns of all processes, in each of them."""
        found = own.new_empty((*own.shape[:-1], self.count))
        rows = found.view(-1, self.count)
        for begin, block in self.blocks(own):
            rows[begin : begin + len(block)] = self.joined(self.exchange.gather(block))
        return found

    def at_first(self, own: Tensor) -> Tensor | None:
        """Return (..., C) the columns of all processes in the first one, None in the others."""
        parts = [found for _, found in self.at_first_in_blocks(own)]
        if self.exchange.rank:
            return None
        return torch.cat([one for one in parts if one is not None]).view(*own.shape[:-1], -1)

    def streamed(self, own: Tensor) -> Streamed:
        """Return the columns of all processes for a file; every process must read its blocks."""

        def blocks() -> Iterator[Tensor]:
            for _, found in self.at_first_in_blocks(own):
                if found is not None:
                    yield found

        return Streamed((*own.shape[:-1], self.count), own.dtype, blocks)

    def at_first_in_blocks(self, own: Tensor) -> Iterator[tuple[int, Tensor | None]]:
        """Yield the first row of each block, and (n, C) its rows in the first process."""
        for begin, block in self.blocks(own):
            parts = self.exchange.gather_at_first(block)
            yield begin, None if parts is None else self.joined(parts)

    def blocks(self, own: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield the first row of each block, and (n, widest) the columns that count here."""
        rows = own.reshape(-1, own.shape[-1])
        step = max(1, BLOCK // self.count)
        for begin in range(0, len(rows), step):
            found = rows[begin : begin + step].index_select(1, self.counted.to(own.device))
            lacking = self.widest - found.shape[1]
            yield begin, torch.nn.functional.pad(found, (0, lacking)) if lacking else found

    def joined(self, parts: Tensor) -> Tensor:
        """Return (n, C) the columns of all processes, of (world, n, widest)."""
        found = parts.new_empty((parts.shape[1], self.count))
        for one, classes in zip(parts, self.classes, strict=True):
            found[:, classes.to(found.device)] = one[:, : len(classes)]
        return found
