"""Level-weighted bce: one weight per level, after CNN-HL-LI (Wu et al., 2016).

    l(i, j) = w_m(j) bce(i, j)

m(j) is the level of class j; the weights balance fine classes against coarse ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hierlearn.errors import HierlearnError
from hierlearn.losses.bases import bce_loss
from hierlearn.losses.bce import BCELoss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput
    from hierlearn.losses.bce import BCEOptions


def level_weighted_loss(
    log_p: Tensor, log_not_p: Tensor, targets: Tensor, class_weights: Tensor
) -> Tensor:
    """Return (N, C) bce times the (C,) weight of each class."""
    losses = bce_loss(log_p, log_not_p, targets)
    return losses * class_weights.to(losses.dtype)


class LevelWeightedLoss(BCELoss):
    """Binary cross entropy times the weight of the class's level.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        weights: one weight per level, top level first; by default decay ** (level - 1).
        decay: how much less each deeper level counts, where no weights are given.
        options: ``link``, ``log_base``, ``reduction`` and ``validate``.
    """

    function: ClassVar[Any] = staticmethod(level_weighted_loss)
    uses_hierarchy = True
    rows_independent = True
    entries_independent = True
    class_weights: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        weights: Sequence[float] | None = None,
        decay: float = 0.5,
        **options: Unpack[BCEOptions],
    ) -> None:
        super().__init__(label_space, **options)
        hierarchy = self.hierarchy
        if weights is None:
            weights = [decay**level for level in range(hierarchy.depth)]
        if len(weights) != hierarchy.depth:
            raise HierlearnError(f"{len(weights)} weights do not fit {hierarchy.depth} levels")
        if min(weights) < 0:
            raise HierlearnError(f"a weight must not be negative, but one is {min(weights)}")
        by_level = torch.tensor(list(weights), dtype=torch.float64)
        by_class = by_level[torch.tensor(hierarchy.levels) - 1]
        self.register_buffer("class_weights", by_class, persistent=False)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the weighted bce."""
        losses = super().losses(output, targets, mask)
        return losses * self.class_weights.to(losses.dtype)
