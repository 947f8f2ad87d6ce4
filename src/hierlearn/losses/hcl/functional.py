"""HCL as pure functions: base, constraint (equations 3 and 10), the selection of one batch (12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from hierlearn.losses.bases import Base, make_base, zero_one
from hierlearn.losses.hcl.constraint import constrain
from hierlearn.losses.hcl.curriculum import normalized, select_classes

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.losses.hcl.constraint import Scope
    from hierlearn.losses.hcl.curriculum import Normalize


def hcl_loss(
    log_p: Tensor,
    log_not_p: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    *,
    base: str | Base = "bce",
    scope: Scope | None = "ancestors",
    curriculum: Literal["batch"] | None = "batch",
    floor: float = 0.3,
    normalize: Normalize = "mean",
    threshold: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Return (N, C) the weighted losses of HCL, selected by this batch; 0 where unknown.

    The defaults are those of ``HCLLoss``; the paper's are scope "levels", floor 0 and normalize
    "sum" on the log-probabilities of a sigmoid.

    Args:
        log_p: (N, C) node log-probabilities.
        log_not_p: (N, C) log(1 - p).
        targets: (N, C) of 0 and 1.
        hierarchy: the taxonomy.
        base: a name of BASES, or a function of (log p, log(1 - p), targets).
        scope: of the constraint: "ancestors", "levels" or None.
        curriculum: "batch", or None for no selection.
        floor: what an unselected class keeps.
        normalize: what the selection compares; see ``normalized``.
        threshold: replaces C + e_h.
        mask: (N, C) bool, which entries are known.
    """
    losses, errors = constrained(
        make_base(base), scope, hierarchy, (log_p, log_not_p), targets, mask
    )
    if curriculum is None:
        return losses
    with torch.no_grad():
        found = normalized(losses.sum(dim=0), errors.sum(), len(losses), normalize)
        limit = losses.shape[1] + found[1] if threshold is None else threshold
        selected = select_classes(found[0], limit)
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
