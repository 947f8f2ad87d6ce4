"""HCL as pure functions: base, constraint and the selection of one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from hierlearn.losses.bases import Base, make_base, zero_one
from hierlearn.losses.hcl.constraint import constrain
from hierlearn.losses.hcl.curriculum import select_classes

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


def hcl_loss(
    log_p: Tensor,
    log_not_p: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    *,
    base: str | Base = "bce",
    scope: Literal["levels", "ancestors"] | None = "levels",
    floor: float = 0.1,
    mask: Tensor | None = None,
) -> Tensor:
    """Return (N, C) the weighted losses of HCL, selected by this batch; 0 where unknown.

    Args:
        log_p: (N, C) node log-probabilities.
        log_not_p: (N, C) log(1 - p).
        targets: (N, C) of 0 and 1.
        hierarchy: the taxonomy.
        base: a name of BASES, or a function of (log p, log(1 - p), targets).
        scope: of the constraint: "levels", "ancestors" or None.
        floor: what an unselected class keeps; 1 is HCL-Hier.
        mask: (N, C) bool, which entries are known.
    """
    losses, errors = constrained(
        make_base(base), scope, hierarchy, (log_p, log_not_p), targets, mask
    )
    with torch.no_grad():
        selected = select_classes(losses.sum(dim=0), losses.shape[1] + errors.sum())
    return losses * (selected.to(losses.dtype) * (1 - floor) + floor)


def constrained(
    base: Base,
    scope: str | None,
    hierarchy: Hierarchy,
    pair: tuple[Tensor, Tensor],
    targets: Tensor,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return (N, C) l_h, and the errors that e_h sums; both 0 where unknown."""
    losses = base(*pair, targets)
    errors = zero_one(pair[0].detach(), pair[1].detach(), targets)
    if scope is not None:
        return (
            constrain(losses, hierarchy, scope, mask),
            constrain(errors, hierarchy, scope, mask),
        )
    if mask is None:
        return losses, errors
    return torch.where(mask, losses, 0.0), torch.where(mask, errors, 0.0)
