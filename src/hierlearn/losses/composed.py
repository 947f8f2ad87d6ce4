"""ComposedLoss: a link and a base, nothing else; bce and focal are points of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.kernels import rows
from hierlearn.links import SigmoidLink
from hierlearn.losses.bases import BCE, Base, Focal, make_base, mix, zero_one
from hierlearn.losses.checks import PerClass, per_class
from hierlearn.losses.loss import ElementwiseLoss, WeightedOptions

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput


class ComposedOptions(WeightedOptions, total=False):
    """What a loss on a base takes by name; see ComposedLoss."""

    pos_weight: PerClass | None


class ComposedLoss(ElementwiseLoss):
    """Node log-probabilities -> base, elementwise.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        base: a name of BASES, or a function of (log p, log(1 - p), targets).
        pos_weight: what the loss of a positive is multiplied by, C numbers in the hierarchy's
            order, or by name, where the others are 1; as in torch's BCEWithLogitsLoss.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    uses_hierarchy = False
    takes_fractions = True
    weighs_classes = True
    rows_independent = True
    entries_independent = True
    pos_weight: Tensor | None

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        base: str | Base,
        pos_weight: PerClass | None = None,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        weights = per_class("pos_weight", pos_weight, self.hierarchy)
        self.register_buffer("pos_weight", weights, persistent=False)
        self.base = make_base(base)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the base of every entry."""
        del mask
        pair = output.pair
        if self.pos_weight is None:
            return self.base(*pair, targets)
        positive = self.base(*pair, torch.ones_like(targets)) * self.pos_weight.to(pair[0].dtype)
        return mix(positive, self.base(*pair, torch.zeros_like(targets)), targets)

    def is_linear(self) -> bool:
        """Whether the base is; that of errors is not."""
        return self.takes_fractions and self.base is not zero_one

    def kernel_sums(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None
    ) -> Tensor | None:
        """Return the sums by a CPU kernel: bce and focal, where the link is the sigmoid."""
        link, base = output.link, self.base
        if not isinstance(link, SigmoidLink) or type(base) not in (BCE, Focal):
            return None
        if self.pos_weight is not None:
            return None
        logits = output.float_logits
        if not rows.can_use(logits, targets):
            return None
        from hierlearn.kernels import entries_numba

        def plain(x: Tensor) -> Tensor:
            values = self.losses(link.output(x), targets, mask)
            return (values if mask is None else torch.where(mask, values, 0.0)).sum(dim=1)

        numbers: tuple[float, ...] = ()
        if isinstance(base, BCE):
            kernel, numbers = entries_numba.bce, (base.scale,)
        elif isinstance(base, Focal):
            sides = (1.0, 1.0) if base.alpha is None else (base.alpha, 1 - base.alpha)
            kernel, numbers = entries_numba.focal, (*sides, base.gamma)
        constants = tuple(map(rows.as_number, numbers))
        return rows.row_losses(kernel, logits, targets, mask, constants, plain)

    def extra_repr(self) -> str:
        """Name the base when the module is printed."""
        return f"{super().extra_repr()}, base={self.base}"
