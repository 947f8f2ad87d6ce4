"""ShardedLoss: the last linear layer and the loss of one process's classes, in chunks of rows.

    logits = features weight + bias    (N, S), never all at once

Every process has the features of all rows. As in LinearHCLLoss, the logits of a chunk of rows are
computed, used and dropped; the gradients of features, weight and bias are made on the way. Where a
curriculum selects by the batch, a first pass over the chunks sums the losses of classes. All
processes cut the rows into the same chunks, since every chunk is an exchange.

Exchanged per batch: (N, groups) logarithms for the softmax link or (N, L) maxima for scope
"levels", the gradients of the top, and C + 2 sums where classes are selected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.losses.loss import at_least
from hierlearn.losses.sharded.chunks import make_chunk
from hierlearn.losses.sharded.parts import HCLPart, sharded_part

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn.hierarchy.sharded import ShardedHierarchy
    from hierlearn.links import Link
    from hierlearn.losses.loss import Loss
    from hierlearn.losses.sharded.chunks import Chunk

CHUNK = {"cuda": 1 << 28, "cpu": 1 << 23}  # bytes of the logits of a chunk


@dataclass(frozen=True)
class RowBatch:
    """The labels of all N rows of a batch, for the classes of one process.

    Attributes:
        count: N.
        take: returns (n, S) targets and mask, or None, of some rows.
        weight: (N,) how much each row counts; None for 1.
    """

    count: int
    take: Callable[[slice], tuple[Tensor, Tensor | None]]
    weight: Tensor | None = None


class ShardedLoss(nn.Module):
    """The loss of all processes, and the gradients of what this one holds.

    Args:
        loss: of the whole label space; it selects classes and keeps its state.
        hierarchy: the classes of this process.
        link: how logits are read; by default as the loss reads them.
        chunk: the rows of a chunk; by default about 8 MiB of logits, and 256 MiB on a GPU.

    Attributes:
        part: what this process computes.
    """

    def __init__(
        self,
        loss: Loss,
        hierarchy: ShardedHierarchy,
        *,
        link: Link | None = None,
        chunk: int | None = None,
    ) -> None:
        super().__init__()
        if loss.reduction == "none":
            raise HierlearnError(
                "a loss in shards never has all entries at once; pass reduction 'mean' or 'sum'"
            )
        self.hierarchy, self.chunk = hierarchy, chunk
        self.part = sharded_part(loss, hierarchy, link)
        owners = hierarchy.shard.shards.owner
        self.largest = int((owners < 0).sum() + torch.tensor(owners[owners >= 0]).bincount().max())

    def forward(self, features: Tensor, weight: Tensor, bias: Tensor, batch: RowBatch) -> Tensor:
        """Return the loss of a batch, the same in all processes.

        Args:
            features: (N, F) of all rows; its gradient is this process's part of it.
            weight: (F, S) of the classes of this process.
            bias: (S,).
            batch: the labels of the rows.
        """
        kind = features.device.type
        half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        learns = torch.is_grad_enabled() and weight.requires_grad
        work = Work(self, batch, half, learns=learns)
        found: Tensor = _Chunks.apply(work, features, weight, bias)  # type: ignore[no-untyped-call]
        return found

    def chunks(self, rows: int, like: Tensor) -> list[slice]:
        """Return the same chunks of rows in all processes."""
        step = self.chunk
        if step is None:
            size = CHUNK.get(like.device.type, CHUNK["cuda"])
            step = max(1, size // (self.largest * like.element_size()))
        return [slice(begin, min(begin + step, rows)) for begin in range(0, rows, step)]


class Work:
    """One batch of a ShardedLoss: its chunks, its sums, its gradients."""

    def __init__(
        self, loss: ShardedLoss, batch: RowBatch, half: torch.dtype | None, *, learns: bool
    ) -> None:
        self.loss, self.part, self.batch, self.half = loss, loss.part, batch, half
        self.hierarchy, self.learns = loss.hierarchy, learns
        self.gradients: list[Tensor] = []

    def run(self, features: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss, and what its gradients are still to be multiplied by."""
        self.features, self.weight, self.bias = features, weight, bias
        if self.half is not None:
            self.features, self.weight, self.bias = (
                one.to(self.half) for one in (features, weight, bias)
            )
        if self.learns:
            self.gradients = [torch.zeros_like(one) for one in (features, weight, bias)]
        chunks = self.loss.chunks(self.batch.count, weight)
        value = torch.zeros((), dtype=torch.float64, device=weight.device)
        count, sums, weights, kept = value.clone(), self.new_sums(), None, None
        if sums is not None and not self.selects:
            weights = self.stored_weights(sums.dtype)
        if sums is not None and self.selects:
            for rows in chunks:
                kept = self.chunk(rows, graph=len(chunks) == 1)
                kept.add_to(sums)
            kept = kept if len(chunks) == 1 else None
            weights = self.select(sums)
        for rows in chunks:
            found = self.chunk(rows) if kept is None else kept
            total, slope = found.learn(weights, learns=self.learns)
            value += total
            if slope is not None:
                self.add_gradients(rows, slope.to(self.weight.dtype))
            if sums is not None and not self.selects:
                found.add_to(sums)
            count += self.part.count(found.targets, found.mask, self.row_weight(rows))
        if sums is not None and not self.selects:
            self.select(sums)  # of the epoch
        value, count = self.hierarchy.exchange.total(torch.stack([value, count])).unbind()
        share = torch.ones_like(count)
        if self.part.whole.reduction == "mean":
            share = share / at_least(count, self.batch.weight)
        return (value * share).to(weight.dtype), share

    # ------------------------------------------------------------------ the curriculum

    @property
    def selects(self) -> bool:
        """Whether classes are selected by this batch."""
        return isinstance(self.part, HCLPart) and self.part.whole.curriculum == "batch"

    def new_sums(self) -> Tensor | None:
        """Return (S + 1,) zeros for class sums and errors; None where there is no curriculum."""
        if not isinstance(self.part, HCLPart) or self.part.whole.curriculum is None:
            return None
        dtype = torch.promote_types(self.weight.dtype, torch.float32)
        return torch.zeros(len(self.hierarchy) + 1, dtype=dtype, device=self.weight.device)

    def stored_weights(self, dtype: torch.dtype) -> Tensor:
        """Return the (S,) weights of classes that the epoch before selected."""
        assert isinstance(self.part, HCLPart)
        whole = self.part.whole
        return whole.weights_of(whole.selected[self.hierarchy.classes], dtype)

    def select(self, sums: Tensor) -> Tensor:
        """Let all processes select classes by the sums of all, and return the (S,) weights."""
        assert isinstance(self.part, HCLPart)
        whole = self.part.whole
        own = self.hierarchy.counted > 0
        every = sums.new_zeros(len(whole.label_space) + 1)
        every[self.hierarchy.classes[own]] = sums[:-1][own]
        every[-1] = sums[-1]
        every = self.hierarchy.exchange.total(every)
        weight = self.batch.weight
        rows: int | Tensor = self.batch.count if weight is None else weight.sum()
        found = whole.weigh(every[:-1], every[-1], rows, summed=True)
        assert found is not None
        return found[self.hierarchy.classes]

    # ------------------------------------------------------------------ chunks

    def row_weight(self, rows: slice) -> Tensor | None:
        """Return the weights of some rows."""
        return None if self.batch.weight is None else self.batch.weight[rows]

    def chunk(self, rows: slice, *, graph: bool = True) -> Chunk:
        """Return the losses of a chunk of rows; without ``graph`` it has no gradients."""
        kind, graph = self.weight.device.type, graph and self.learns
        targets, mask = self.batch.take(rows)
        with torch.autocast(kind, enabled=False), torch.set_grad_enabled(graph):
            with torch.no_grad():
                logits = torch.addmm(self.bias, self.features[rows], self.weight)
            x = (logits if self.half is None else logits.float()).requires_grad_(graph)
            return make_chunk(self.part, x, targets, mask, self.row_weight(rows))

    def add_gradients(self, rows: slice, slope: Tensor) -> None:
        """Add the gradients of a chunk, given those of its logits."""
        features, weight, bias = self.gradients
        with torch.autocast(slope.device.type, enabled=False):
            if self.half is None:
                weight.addmm_(self.features[rows].t(), slope)
            else:
                weight.add_(self.features[rows].t() @ slope)
            bias.add_(slope.sum(dim=0))
            if self.hierarchy.exchange.rank and len(self.hierarchy.top):
                # The top is the same in all processes, and the first one passes its gradient on.
                slope.index_fill_(1, self.hierarchy.top, 0.0)
            features[rows] = slope @ self.weight.t()


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        value, ctx.share = work.run(features.detach(), weight.detach(), bias.detach())
        ctx.gradients = work.gradients
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        scale = upstream[0] * ctx.share
        return None, *(one.mul_(scale.to(one.dtype)) for one in gradients)
