"""The focal loss of Lin et al. (2017): what is right already counts less (the FocalLoss row).

l(i, j) = -alpha_t (1 - p_t)^gamma log p_t,    p_t = p where y = 1, else 1 - p
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.losses.bases import FocalBase
from hierlearn.losses.composed import ComposedLoss

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import Link
    from hierlearn.losses.loss import Reduction


class FocalLoss(ComposedLoss):
    """FocalLoss loss of every class.

    Args:
        hierarchy: the taxonomy.
        alpha: the weight of positives, 1 - alpha that of negatives; None for no weights.
        gamma: how much less an entry counts that is right already; 0 is cross entropy.
        link: a name of LINKS or a Link.
        reduction: "mean" over known entries, "sum" or "none".
        validate: check the values of targets at every call.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        alpha: float | None = 0.25,
        gamma: float = 2.0,
        link: str | Link = "sigmoid",
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(
            hierarchy,
            base=FocalBase(alpha, gamma),
            link=link,
            reduction=reduction,
            validate=validate,
        )
