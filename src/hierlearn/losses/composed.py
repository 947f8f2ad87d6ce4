"""ComposedLoss: a link and a base, nothing else; bce and focal are points of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.kernels import rows
from hierlearn.links import SigmoidLink
from hierlearn.losses.bases import BCE, Base, Focal, make_base, zero_one
from hierlearn.losses.loss import ElementwiseLoss

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput


class ComposedLoss(ElementwiseLoss):
    """Node log-probabilities -> base, elementwise.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        base: a name of BASES, or a function of (log p, log(1 - p), targets).
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    uses_hierarchy = False
    takes_fractions = True
    rows_independent = True
    entries_independent = True

    def __init__(
        self, label_space: LabelSpace | Hierarchy, *, base: str | Base, **options: Any
    ) -> None:
        super().__init__(label_space, **options)
        self.base = make_base(base)
        if self.base is zero_one:
            self.takes_fractions = False

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the options; the base of a subclass is its own."""
        names = super().option_names()
        return names if cls is ComposedLoss else [name for name in names if name != "base"]

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the base of every entry."""
        del mask
        return self.base(output.log_p, output.log_not_p, targets)

    def kernel_sums(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None
    ) -> Tensor | None:
        """Return the sums by a CPU kernel: bce and focal, where the link is the sigmoid."""
        link, base = output.link, self.base
        if not isinstance(link, SigmoidLink) or type(base) not in (BCE, Focal):
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
