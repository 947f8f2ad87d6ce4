"""Cross entropy: every class alone, the flat baseline (the paper's BCELoss row).

l(i, j) = -(y log p + (1 - y) log(1 - p)),    p = sigmoid(x)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch.nn.functional import binary_cross_entropy_with_logits

from hierlearn.links import Link, SigmoidLink
from hierlearn.losses.bases import BCE
from hierlearn.losses.composed import ComposedLoss

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.losses.loss import Reduction


class BCELoss(ComposedLoss):
    """Binary cross entropy of every class; targets may be anything in [0, 1].

    Args:
        hierarchy: the taxonomy.
        link: a name of LINKS or a Link; "sigmoid" is the usual loss.
        log_base: e, or 2.
        reduction: "mean" over known entries, "sum" or "none".
        validate: check the values of targets at every call.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        link: str | Link = "sigmoid",
        log_base: float = math.e,
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(
            hierarchy, base=BCE(log_base), link=link, reduction=reduction, validate=validate
        )

    def losses(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return bce, by torch's own function where the link is the sigmoid."""
        if not isinstance(self.link, SigmoidLink) or not isinstance(self.base, BCE):
            return super().losses(logits, targets, mask)
        wanted = targets.to(logits.dtype)
        losses = binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        return losses if self.base.scale == 1 else losses * self.base.scale
