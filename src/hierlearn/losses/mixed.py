"""MixedLoss: a weighted sum of losses on the same logits.

    l = sum over parts k of w_k l_k

By default half cross entropy, half MCLoss: cross entropy teaches every class by itself, MCLoss
teaches what the maximum over descendants will show. Read such logits through the max link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.losses.composed import make_link
from hierlearn.losses.loss import Loss, Reduction, RowLoss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import Link


class MixedLoss(Loss):
    """A weighted sum of losses of every entry; "none" gives (N, C).

    Args:
        hierarchy: the taxonomy.
        parts: name of LOSSES -> weight; losses of whole rows (softmax losses) do not mix in.
        link: how to read the logits: a name of LINKS or a Link.
        reduction: "mean" over known entries, "sum" or "none".
        validate: check the values of targets at every call.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        parts: Mapping[str, float] | None = None,
        link: str | Link = "max",
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(hierarchy, reduction=reduction, validate=validate)
        from hierlearn.losses import LOSSES

        self.weights = dict(parts or {"bce": 0.5, "mcloss": 0.5})
        self.link = make_link(hierarchy, link)
        made = []
        for name, weight in self.weights.items():
            if name not in LOSSES or name == "mixed":
                known = [other for other in LOSSES if other != "mixed"]
                raise HierlearnError(unknown_name("part of a mixed loss", name, known))
            if not weight > 0:
                raise HierlearnError(f"the weight of {name!r} must be above 0, not {weight}")
            part = LOSSES[name](hierarchy, reduction=reduction)
            if isinstance(part, RowLoss):
                raise HierlearnError(
                    f"{name!r} is a loss of whole rows and does not mix with losses of entries"
                )
            made.append(part)
        self.parts = nn.ModuleList(made)
        self.per_row = all(part.per_row for part in made)

    def compute(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the weighted sum of the parts."""
        total: Tensor | None = None
        for part, weight in zip(self.parts, self.weights.values(), strict=True):
            value = weight * part.compute(logits, targets, mask)  # type: ignore[operator]
            total = value if total is None else total + value
        assert total is not None
        return total

    def extra_repr(self) -> str:
        """Name the parts when the module is printed."""
        return f"{super().extra_repr()}, parts={self.weights}"
