"""Chunks of rows: their losses, class sums and gradients, by plain operations or by CPU kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from hierlearn.losses.sharded.kernels import KernelChunk, can_use
from hierlearn.losses.sharded.parts import HCLPart

if TYPE_CHECKING:
    from hierlearn.losses.sharded.parts import EntryPart


class Chunk(Protocol):
    """Some rows of a batch.

    Attributes:
        targets: (n, S) of the classes of this process.
        mask: (n, S) which of them are known; None for all.
    """

    targets: Tensor
    mask: Tensor | None

    def add_to(self, sums: Tensor) -> None:
        """Add the summed losses of classes, and the errors, to (S + 1,) sums of what counts."""
        ...

    def learn(self, weights: Tensor | None, *, learns: bool) -> tuple[Tensor, Tensor | None]:
        """Return the summed loss of what counts here, and its gradient (n, S) if asked for.

        Args:
            weights: (S,) what classes weigh; None for 1.
            learns: whether to return the gradient.
        """
        ...


class PlainChunk:
    """The losses of a part of a loss, under autograd.

    Args:
        part: what this process computes.
        logits: (n, S), a leaf of the graph.
        targets: (n, S).
        mask: (n, S) or None.
        weight: (n,) how much each row counts; None for 1.
    """

    def __init__(
        self,
        part: EntryPart,
        logits: Tensor,
        targets: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
    ) -> None:
        self.logits, self.targets, self.mask, self.weight = logits, targets, mask, weight
        self.losses, self.errors = part.values(logits, targets, mask)

    def add_to(self, sums: Tensor) -> None:
        """Add class sums and errors."""
        assert self.errors is not None
        share: float | Tensor = 1.0 if self.weight is None else self.weight[:, None]
        sums[:-1] += column_sums(self.losses.detach() * share)
        sums[-1] += (self.errors * share).sum()

    def learn(self, weights: Tensor | None, *, learns: bool) -> tuple[Tensor, Tensor | None]:
        """Return the summed loss and its gradient."""
        losses = self.losses
        with torch.set_grad_enabled(learns):
            if weights is not None:
                losses = losses * weights.to(losses.dtype)
            if self.weight is not None:
                losses = losses * (self.weight if losses.dim() == 1 else self.weight[:, None])
            total = losses.sum()
        slope = torch.autograd.grad(total, self.logits)[0] if learns else None
        return total.detach().double(), slope


def make_chunk(
    part: EntryPart,
    logits: Tensor,
    targets: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
) -> Chunk:
    """Return the chunk of some rows, by kernels where they can; see PlainChunk."""
    if weight is None and isinstance(part, HCLPart) and can_use(part, logits):
        return KernelChunk(part, logits, targets, mask)
    return PlainChunk(part, logits, targets, mask, weight)


def column_sums(values: Tensor) -> Tensor:
    """Return (S,) the sum of each column, the same for equal columns wherever they are.

    torch's own sum rounds columns by their place in memory. Classes whose losses are equal must
    tie, as a class and a parent that binds it in every row do, so that all processes select alike.
    """
    while len(values) > 1:
        half = len(values) // 2
        rest = values[2 * half :]
        values = values[:half] + values[half : 2 * half]
        if len(rest):
            values[0] += rest[0]
    return values[0] if len(values) else values.new_zeros(values.shape[1])
