"""Leaf cross entropy: a softmax over the terminal classes, and the mass that fits the label.

    l(i) = -log(mass of the row's terminal label),    q = softmax(x over the terminal classes)

- A leaf, or an inner terminal class of the label space: its own mass q.
- An inner label that is not terminal: the summed mass below it, P(c), since any of it would fit.
- An inner terminal label whose children are unknown (mask): P(c) too.
- Several terminal labels: the mean of their losses. No label: 0, and the row does not count.

The logits of inner classes that are not terminal are not used. On a one-level hierarchy this is
torch's cross entropy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hierlearn.losses.loss import SoftmaxRowLoss

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


def leaf_ce_loss(
    log_masses: Tensor, labels: Tensor, hierarchy: Hierarchy, is_exact: Tensor
) -> Tensor:
    """Return (N,) minus the log mass that fits each row's labels.

    Args:
        log_masses: (N, C) the log mass of each terminal class, LOG_ZERO for the others.
        labels: (N, C) the weight of each terminal label; a row sums to 1 or 0.
        hierarchy: the taxonomy.
        is_exact: (N, C) or (C,) bool, where only the class's own mass fits, not what lies below.
    """
    summed = hierarchy.logsumexp_up(log_masses)
    fits = torch.where(is_exact.expand_as(summed), log_masses, summed)
    # LOG_ZERO times a weight of 0 is 0: no entry without a label disturbs the sum.
    return -(labels * fits).sum(dim=1)


class LeafCELoss(SoftmaxRowLoss):
    """Cross entropy of the softmax over the terminal classes; trees and DAGs.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(leaf_ce_loss)
    uses_hierarchy = False
    rows_independent = True

    def row_losses(self, log_masses: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return minus the log mass that fits each row's labels."""
        exact = self.is_terminal
        if mask is not None:
            unknown = (~mask).to(log_masses.dtype)
            exact = exact & (self.sum_of_children(unknown) == 0)
        return leaf_ce_loss(log_masses, labels, self.hierarchy, exact)

    def formula(self) -> tuple[str, tuple[Any, ...]]:
        """Return the name of the kernel."""
        return "leaf-ce", ()
