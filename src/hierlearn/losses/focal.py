"""The focal loss of Lin et al. (2017): easy entries count less (the paper's FocalLoss row).

l(i, j) = -alpha_t (1 - p_t)^gamma log p_t,    p_t = p where y = 1, else 1 - p
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hierlearn.kernels import rows
from hierlearn.links import SigmoidLink
from hierlearn.losses.bases import Focal, focal_loss
from hierlearn.losses.composed import ComposedLoss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput


class FocalLoss(ComposedLoss):
    """Focal loss of every class.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        alpha: the weight of positives, 1 - alpha that of negatives; None for no weights.
        gamma: how much less an entry counts that is right already; 0 is bce.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(focal_loss)
    rows_independent = True
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"gamma": (0.5, 1.0, 2.0)}

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        alpha: float | None = 0.25,
        gamma: float = 2.0,
        **options: Any,
    ) -> None:
        super().__init__(label_space, base=Focal(alpha, gamma), **options)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the focal loss of every entry."""
        return super().losses(output, targets, mask)

    def kernel_sums(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None
    ) -> Tensor | None:
        """Return the sums by a CPU kernel where the link is the sigmoid."""
        base, link = self.base, output.link
        if not isinstance(link, SigmoidLink) or not isinstance(base, Focal):
            return None
        logits = output.float_logits
        if not rows.can_use(logits, targets):
            return None
        from hierlearn.kernels.entries_numba import focal

        def plain(x: Tensor) -> Tensor:
            values = self.losses(link.output(x), targets, mask)
            return (values if mask is None else values * mask).sum(dim=1)

        sides = (1.0, 1.0) if base.alpha is None else (base.alpha, 1 - base.alpha)
        constants = tuple(rows.as_number(one) for one in (*sides, base.gamma))
        return rows.row_losses(focal, logits, targets, mask, constants, plain)
