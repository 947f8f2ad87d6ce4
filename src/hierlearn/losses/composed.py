"""ComposedLoss: a link and a base, nothing else; bce and focal are points of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.losses.bases import Base, make_base
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
    rows_independent = True

    def __init__(
        self, label_space: LabelSpace | Hierarchy, *, base: str | Base, **options: Any
    ) -> None:
        super().__init__(label_space, **options)
        self.base = make_base(base)

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the options; the base of a subclass is its own."""
        names = super().option_names()
        return names if cls is ComposedLoss else [name for name in names if name != "base"]

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the base of every entry."""
        del mask
        return self.base(output.log_p, output.log_not_p, targets)

    def extra_repr(self) -> str:
        """Name the base when the module is printed."""
        return f"{super().extra_repr()}, base={self.base}"
