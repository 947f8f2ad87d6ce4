"""MCLoss: the max constraint loss of C-HMCNN (Giunchiglia and Lukasiewicz, 2020).

    l(A) = -y_A ln max over B in D_A of y_B h_B - (1 - y_A) ln(1 - max over B in D_A of h_B)

with h = sigmoid(x) and D_A the class A and its descendants. A positive class takes its best
positive descendant, so that no wrong one teaches it; a negative class takes its worst descendant.
The sigmoid grows, so both maxima are of logits, climbing the hierarchy level by level: memory
O(N * (C + E)), where the N x C x C tensor of the published code is quadratic in C. Score the
network with the max link; without it its outputs mean little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import softplus

from hierlearn.links import MaxLink
from hierlearn.losses.loss import ElementwiseLoss, Reduction

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


class MCLoss(ElementwiseLoss):
    """Max constraint loss; targets are 0 or 1 and closed under ancestors.

    Args:
        hierarchy: the taxonomy, tree or DAG.
        reduction: "mean" over known entries, "sum" or "none".
        validate: check the values of targets at every call.
    """

    def __init__(
        self, hierarchy: Hierarchy, *, reduction: Reduction = "mean", validate: bool = False
    ) -> None:
        super().__init__(hierarchy, reduction=reduction, validate=validate)
        self.link = MaxLink(hierarchy)

    def losses(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the loss of every class; unknown entries are left out of the maxima."""
        positive = targets > 0.5
        known = logits if mask is None else logits.masked_fill(~mask, -torch.inf)
        best_positive = self.hierarchy.max_up(known.masked_fill(~positive, -torch.inf))
        best = self.hierarchy.max_up(known)
        # Minus infinity, where nothing is known below, must not meet the gradient of softplus.
        margin = torch.where(positive, -best_positive, best)
        usable = torch.isfinite(margin)
        return torch.where(usable, softplus(torch.where(usable, margin, 0.0)), 0.0)
