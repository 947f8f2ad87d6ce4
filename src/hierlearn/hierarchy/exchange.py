"""Exchange: what processes that hold a shard each tell each other, with gradients.

The loss of all processes together is the sum of the losses that each of them computes. So what one
process gave to the others gets back the sum of their gradients:

    gather    every process gets the values of all          backward: the sum of what they return
    shared    values that every process computes alike      backward: the sum over the processes
    agreed    the same, where ``shared`` comes before       backward: as it is

What every process computes alike may still differ by rounding; all then take it from the first, so
that what is equal in one process is equal among several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed

if TYPE_CHECKING:
    from collections.abc import Sequence


class Exchange:
    """Collectives of the processes of torch.distributed.

    Args:
        rank: which process this is.
        world: how many there are.

    Attributes:
        bytes: how many this process has sent so far, in one copy.
    """

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.bytes = 0

    def gather(self, x: Tensor) -> Tensor:
        """Return (world, ...) the values of all processes, whose shapes are the same."""
        x = x.contiguous()
        found = x.new_empty((self.world, *x.shape))
        distributed.all_gather(list(found.unbind()), x)
        self.bytes += x.nbytes
        return found

    def gather_at_first(self, x: Tensor) -> Tensor | None:
        """Return (world, ...) the values of all processes in the first one, None in the others."""
        x = x.contiguous()
        found = None if self.rank else x.new_empty((self.world, *x.shape))
        distributed.gather(x, None if found is None else list(found.unbind()), dst=0)
        self.bytes += x.nbytes
        return found

    def from_first(self, x: Tensor) -> Tensor:
        """Return the values of the first process."""
        found = x.clone(memory_format=torch.contiguous_format)
        distributed.broadcast(found, 0)
        self.bytes += 0 if self.rank else x.nbytes
        return found

    def total(self, x: Tensor) -> Tensor:
        """Return the sum of the values of all processes, the same in each bit by bit."""
        found = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(found)
        self.bytes += x.nbytes
        return found

    def own_total(self, x: Tensor) -> Tensor:
        """Return (...) the sum over the processes of their (world, ...) at this process's place."""
        found = torch.empty_like(x[self.rank], memory_format=torch.contiguous_format)
        distributed.reduce_scatter(found, list(x.contiguous().unbind()))
        self.bytes += x.nbytes
        return found

    def gather_rows(self, x: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the rows of all processes one below the other; their numbers are ``counts``."""
        most = max(counts)
        padded = x if len(x) == most else torch.cat([x, x.new_zeros((most - len(x), *x.shape[1:]))])
        found = self.gather(padded)
        return torch.cat([found[rank, :count] for rank, count in enumerate(counts)])


def gather(exchange: Exchange, x: Tensor) -> Tensor:
    """Return (world, ...) the values of all processes; differentiable."""
    found: Tensor = _Gather.apply(exchange, x)  # type: ignore[no-untyped-call]
    return found


def shared(exchange: Exchange, x: Tensor) -> Tensor:
    """Return values that every process computes alike; their gradients are summed."""
    found: Tensor = _Shared.apply(exchange, x)  # type: ignore[no-untyped-call]
    return found


def agreed(exchange: Exchange, x: Tensor) -> Tensor:
    """Return values that every process computes alike, without differences by rounding."""
    found: Tensor = _Agreed.apply(exchange, x)  # type: ignore[no-untyped-call]
    return found


def gather_rows(exchange: Exchange, x: Tensor, counts: Sequence[int], scale: float) -> Tensor:
    """Return the rows of all processes one below the other; differentiable.

    Args:
        exchange: the processes.
        x: (n, ...) the rows of this one.
        counts: the number of rows of each process.
        scale: a factor on the gradient; their number, where gradients are averaged afterwards.
    """
    found: Tensor = _GatherRows.apply(exchange, x, tuple(counts), scale)  # type: ignore[no-untyped-call]
    return found


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, exchange: Exchange, x: Tensor) -> Tensor:
        ctx.exchange = exchange
        return exchange.gather(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.exchange.own_total(gradients[0])


class _Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, exchange: Exchange, x: Tensor) -> Tensor:
        ctx.exchange = exchange
        return exchange.from_first(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.exchange.total(gradients[0])


class _Agreed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, exchange: Exchange, x: Tensor) -> Tensor:
        del ctx
        return exchange.from_first(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        del ctx
        return None, gradients[0]


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, exchange: Exchange, x: Tensor, counts: tuple[int, ...], scale: float
    ) -> Tensor:
        ctx.exchange, ctx.counts, ctx.scale = exchange, counts, scale
        return exchange.gather_rows(x, counts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, None, None]:
        exchange, counts = ctx.exchange, ctx.counts
        rows = torch.split(gradients[0], list(counts))
        most = max(counts)
        padded = gradients[0].new_zeros((len(counts), most, *gradients[0].shape[1:]))
        for place, part in zip(padded, rows, strict=True):
            place[: len(part)] = part
        own = exchange.own_total(padded)[: counts[exchange.rank]]
        return None, own * ctx.scale, None, None
