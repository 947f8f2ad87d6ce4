"""Conditional softmax: a softmax among siblings at every step, as in YOLO9000 (Redmon, 2017).

    p(c | parent) = exp(x_c) / sum over the siblings s of exp(x_s)
    l(i) = - sum over the positive classes c of (1 / positives among its siblings) log p(c | parent)

The children of one parent are siblings, and so are the top classes. A row with one path has one
positive in each group on it, and its loss is the summed cross entropy down the path; below an inner
terminal label there is no loss. Where a row has several paths, the positives of a group share its
weight. An unknown class is left out of its group. On a one-level hierarchy this is cross entropy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.hierarchy.propagate import LOG_ZERO
from hierlearn.links import SiblingsLink
from hierlearn.losses.loss import Reduction, RowLoss

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


class CondSoftmaxLoss(RowLoss):
    """Cross entropy among siblings, summed down the path; trees.

    Args:
        hierarchy: the taxonomy, a tree.
        reduction: "mean" over labeled rows, "sum" or "none".
        validate: check the values of targets at every call.
    """

    link: SiblingsLink

    def __init__(
        self, hierarchy: Hierarchy, *, reduction: Reduction = "mean", validate: bool = False
    ) -> None:
        super().__init__(hierarchy, reduction=reduction, validate=validate)
        self.link = SiblingsLink(hierarchy)

    def compute(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the reduced cross entropy of every group that holds a positive."""
        positive = targets.to(logits.dtype)
        if mask is not None:
            positive = torch.where(mask, positive, 0.0)
            logits = torch.where(mask, logits, LOG_ZERO)
        groups = self.link.groups
        empty = logits.new_zeros((len(logits), len(self.hierarchy) + 1))  # a column a group
        counts = empty.index_add(1, groups, positive).index_select(1, groups)
        steps = self.link.log_steps(logits)
        losses = -(positive / counts.clamp_min(1) * steps).sum(dim=1)
        return self.reduce(losses, (positive > 0).any(dim=1))
