"""Leaf cross entropy: a softmax over the terminal classes, and the mass that fits the label.

    l(i) = -log(mass of the row's terminal label),    q = softmax(x over the terminal classes)

- A leaf, or an inner class named in ``terminals``: its own mass q.
- An inner label that is not terminal: the summed mass below it, P(c), since any of it would fit.
- An inner terminal label whose children are unknown (mask): P(c) too.
- Several terminal labels: the mean of their losses. No label: 0, and the row does not count.

The inner classes' logits are not used, except those of ``terminals``. On a one-level hierarchy this
is torch's cross entropy.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch

from hierlearn.links import SoftmaxLink
from hierlearn.losses.loss import Reduction, RowLoss

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label


class SoftmaxRowLoss(RowLoss):
    """A row loss on the softmax link.

    Args:
        hierarchy: the taxonomy.
        terminals: inner classes that occur as a most specific label; the leaves always count.
        reduction: "mean" over labeled rows, "sum" or "none".
        validate: check the values of targets at every call.
    """

    link: SoftmaxLink
    is_terminal: Tensor

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        terminals: Iterable[Label] | None = None,
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(hierarchy, reduction=reduction, validate=validate)
        self.link = SoftmaxLink(hierarchy, terminals)
        flags = torch.zeros(len(hierarchy), dtype=torch.bool)
        flags[self.link.terminals] = True
        self.register_buffer("is_terminal", flags, persistent=False)

    @abstractmethod
    def row_losses(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (N,) losses, given (N, C) the terminal labels; a row of them sums to 1 or 0."""

    def compute(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Share each row's weight among its terminal labels and reduce."""
        positive = targets.to(logits.dtype)
        if mask is not None:
            positive = torch.where(mask, positive, 0.0)
        ends = positive * (self.sum_of_children(positive) == 0)
        counts = ends.sum(dim=1, keepdim=True)
        losses = self.row_losses(logits, ends / counts.clamp_min(1), mask)
        return self.reduce(losses, counts > 0)


class LeafCELoss(SoftmaxRowLoss):
    """Cross entropy of the softmax over the terminal classes; trees and DAGs."""

    needs_tree = False

    def row_losses(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return minus the log mass that fits each row's labels."""
        own = self.link.log_masses(logits)
        exact = self.is_terminal.expand_as(own)
        if mask is not None:
            unknown = (~mask).to(own.dtype)
            exact = exact & (self.sum_of_children(unknown) == 0)
        fits = torch.where(exact, own, self.hierarchy.logsumexp_up(own))
        # LOG_ZERO times a weight of 0 is 0: no entry without a label disturbs the sum.
        return -(labels * fits).sum(dim=1)
