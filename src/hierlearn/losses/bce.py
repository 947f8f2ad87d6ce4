"""Binary cross entropy: every class alone, the flat baseline (the paper's CrossEntropy row).

l(i, j) = -(y log p + (1 - y) log(1 - p)),    p = sigmoid(x)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from torch.nn.functional import binary_cross_entropy_with_logits

from hierlearn.links import SigmoidLink
from hierlearn.losses.bases import BCE, ComposedLoss, ComposedOptions, bce_loss

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput


class BCEOptions(ComposedOptions, total=False):
    """What a loss on binary cross entropy takes by name; see BCELoss."""

    log_base: float


class BCELoss(ComposedLoss):
    """Binary cross entropy of every class; targets may be anything in [0, 1].

    Args:
        label_space: what can be predicted, or a Hierarchy.
        log_base: e, or 2.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(bce_loss)
    fixes = ("base",)
    rows_independent = True
    entries_independent = True
    formula = ComposedLoss.formula

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        log_base: float = math.e,
        **options: Unpack[ComposedOptions],
    ) -> None:
        super().__init__(label_space, base=BCE(log_base), **options)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return bce, by torch's own function where the link is the sigmoid."""
        if not isinstance(output.link, SigmoidLink) or not isinstance(self.base, BCE):
            return super().losses(output, targets, mask)
        logits = output.float_logits
        weight = None if self.pos_weight is None else self.pos_weight.to(logits.dtype)
        losses = binary_cross_entropy_with_logits(
            logits, targets.to(logits.dtype), reduction="none", pos_weight=weight
        )
        return losses if self.base.scale == 1 else losses * self.base.scale
