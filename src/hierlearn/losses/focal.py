"""The focal loss of Lin et al. (2017): easy entries count less (the paper's FocalLoss row).

l(i, j) = -alpha_t (1 - p_t)^gamma log p_t,    p_t = p where y = 1, else 1 - p
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hierlearn.losses.bases import ComposedLoss, Focal, focal_loss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.losses.bases import ComposedOptions


class FocalLoss(ComposedLoss):
    """Focal loss of every class.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        alpha: the weight of positives, 1 - alpha that of negatives; None for no weights.
        gamma: how much less an entry counts that is right already; 0 is bce.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(focal_loss)
    fixes = ("base",)
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"gamma": (0.5, 1.0, 2.0)}

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        alpha: float | None = 0.25,
        gamma: float = 2.0,
        **options: Unpack[ComposedOptions],
    ) -> None:
        super().__init__(label_space, base=Focal(alpha, gamma), **options)
