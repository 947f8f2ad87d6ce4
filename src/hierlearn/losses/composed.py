"""ComposedLoss: a link and a base, nothing else; cross entropy and focal are points of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.links import LINKS, Link
from hierlearn.losses.bases import Base, make_base
from hierlearn.losses.loss import ElementwiseLoss, Reduction

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


def make_link(hierarchy: Hierarchy, link: str | Link) -> Link:
    """Return the link of a name, or the link itself if it belongs to the hierarchy."""
    if isinstance(link, str):
        if link not in LINKS:
            raise HierlearnError(unknown_name("link", link, LINKS))
        return LINKS[link](hierarchy)
    if not isinstance(link, Link):
        raise HierlearnError(f"a link is a name or a Link, not {link!r}")
    if link.hierarchy != hierarchy:
        raise HierlearnError(f"the link is of {link.hierarchy!r}, the loss of {hierarchy!r}")
    return link


class ComposedLoss(ElementwiseLoss):
    """logits -> link -> base, elementwise.

    Args:
        hierarchy: the taxonomy.
        base: a name of BASES, or a function of (log p, log(1 - p), targets).
        link: a name of LINKS, or a Link.
        reduction: "mean" over known entries, "sum" or "none".
        validate: check the values of targets at every call.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        base: str | Base,
        link: str | Link = "sigmoid",
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(hierarchy, reduction=reduction, validate=validate)
        self.link = make_link(hierarchy, link)
        self.base = make_base(base)

    def losses(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return the base of what the link gives."""
        log_p, log_not_p = self.link(logits)
        return self.base(log_p, log_not_p, targets)

    def extra_repr(self) -> str:
        """Name the base when the module is printed."""
        return f"{super().extra_repr()}, base={self.base}"
