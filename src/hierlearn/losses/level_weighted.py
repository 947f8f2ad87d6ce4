"""Level-weighted cross entropy: a weight a level, after CNN-HL-LI (Wu et al., 2016).

    l(i, j) = w_m(j) bce(i, j)

The weights say how much fine classes count beside coarse ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError
from hierlearn.losses.bce import BCELoss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import Link
    from hierlearn.losses.loss import Reduction


class LevelWeightedLoss(BCELoss):
    """Cross entropy times the weight of the class's level.

    Args:
        hierarchy: the taxonomy.
        weights: a weight a level, top level first; by default decay ** (level - 1).
        decay: how much less each deeper level counts, where no weights are given.
        link: a name of LINKS or a Link.
        reduction: "mean" over known entries, "sum" or "none".
        validate: check the values of targets at every call.
    """

    class_weights: Tensor

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        weights: Sequence[float] | None = None,
        decay: float = 0.5,
        link: str | Link = "sigmoid",
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(hierarchy, link=link, reduction=reduction, validate=validate)
        if weights is None:
            weights = [decay**level for level in range(hierarchy.depth)]
        if len(weights) != hierarchy.depth:
            raise HierlearnError(f"{len(weights)} weights do not fit {hierarchy.depth} levels")
        if min(weights) < 0:
            raise HierlearnError(f"a weight must not be negative, but one is {min(weights)}")
        by_level = torch.tensor(list(weights), dtype=torch.float64)
        by_class = by_level[torch.tensor(hierarchy.levels) - 1]
        self.register_buffer("class_weights", by_class, persistent=False)

    def losses(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the weighted bce."""
        losses = super().losses(logits, targets, mask)
        return losses * self.class_weights.to(losses.dtype)
