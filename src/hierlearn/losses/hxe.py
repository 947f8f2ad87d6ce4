"""Hierarchical cross entropy, HXELoss, of Bertinetto et al. (2020) (the paper's Hier-CE row).

    l(i) = - sum over the path to the label of exp(-alpha * height(c)) * log p(c | parent(c))

with p(c | parent) = P(c) / P(parent), P summed from a softmax over the terminal classes, and
P(root) = 1. Mistakes near the leaves weigh most; with alpha 0 the sum telescopes to -log P(label),
the leaf cross entropy. The path of a leaf directly under the root has one step: log P(leaf).

- An inner terminal label: the path ends there.
- Several terminal labels: the mean of their losses. No label: 0, and the row does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError
from hierlearn.losses.leaf_ce import SoftmaxRowLoss

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label
    from hierlearn.losses.loss import Reduction


class HXELoss(SoftmaxRowLoss):
    """Hierarchical cross entropy; trees.

    Args:
        hierarchy: the taxonomy, a tree.
        alpha: how fast the weights fall with the height; 0 is leaf cross entropy.
        terminals: inner classes that occur as a most specific label; the leaves always count.
        reduction: "mean" over labeled rows, "sum" or "none".
        validate: check the values of targets at every call.
    """

    step_weights: Tensor

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        alpha: float = 0.1,
        terminals: Iterable[Label] | None = None,
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(hierarchy, terminals=terminals, reduction=reduction, validate=validate)
        if alpha < 0:
            raise HierlearnError(f"alpha must not be negative, but is {alpha}")
        self.alpha = alpha
        heights = torch.tensor(hierarchy.heights, dtype=torch.float64)
        self.register_buffer("step_weights", (-alpha * heights).exp(), persistent=False)

    def row_losses(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return the weighted steps down the path."""
        inside = self.hierarchy.logsumexp_up(self.link.log_masses(logits))
        above = inside.index_select(1, self.parent_ids)
        steps = inside.index_add(1, self.child_ids, above, alpha=-1)  # log p(c | parent)
        share = self.hierarchy.sum_up(labels)  # how much of the row's label lies at or below c
        return -(share * self.step_weights.to(steps.dtype) * steps).sum(dim=1)
