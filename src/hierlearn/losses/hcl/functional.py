"""HCL as pure functions: the constraint, the selection of classes, the loss of one batch.

**The constraint**: no class is cheaper than a shallower one (equation 2 of the paper).

    l_h(i, j) = max(l(i, j), max over k that bind j of l(i, k))        equation 10 (Corollary 1)

Scope "levels": every class of a smaller level binds j, m(k) < m(j), as in the paper. Scope
"ancestors": only the ancestors of j. On the 0-1 errors of equation 1 this is the e_h of equation 3.
An unknown entry binds nobody and is 0 itself. The gradient of an entry belongs to whoever attains
the maximum: the class itself where it ties, else the first maximizer in class order. Cost: O(N * C)
for levels, O(N * (C + E)) for ancestors.

**The curriculum**: which classes to learn from now.

    l_hc = min over s in {0, 1}^C of max(sum_j s_j L_j, C - sum_j s_j + e_h)   equation 12

with L_j the summed l_h of class j. Algorithm 1 of the paper, with the ascending sort that its
complexity implies and thresh = C + e_h, is the exact minimizer: with S_K the sum of the K smallest
losses, class K is selected while

    S_K <= thresh + 1 - K

since both terms at K are then at most the second term at K - 1; beyond the first K that fails, the
left side grows and the right side falls. Unselected classes keep the weight ``floor``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.hierarchy.propagate import check, routes_on
from hierlearn.losses.bases import Base, make_base, zero_one
from hierlearn.losses.checks import in_transform

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy

Scope = Literal["levels", "ancestors"]
Normalize = Literal["mean", "sum", "losses"]


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
    errors = zero_one(log_p.detach(), log_not_p.detach(), targets)
    losses = make_base(base)(log_p, log_not_p, targets)
    losses, errors = (bound(one, scope, hierarchy, mask) for one in (losses, errors))
    if curriculum is None:
        return losses
    with torch.no_grad():
        found = normalized(losses.sum(dim=0), errors.sum(), len(losses), normalize)
        limit = losses.shape[1] + found[1] if threshold is None else threshold
        selected = select_classes(found[0], limit)
    return losses * (selected.to(losses.dtype) * (1 - floor) + floor)


def bound(values: Tensor, scope: str | None, hierarchy: Hierarchy, mask: Tensor | None) -> Tensor:
    """Return (N, C) losses or errors under the constraint, if there is one; 0 where unknown."""
    if scope is not None:
        return constrain(values, hierarchy, scope, mask)
    return values if mask is None else torch.where(mask, values, 0.0)


# ---------------------------------------- the constraint


def constrain(
    losses: Tensor, hierarchy: Hierarchy, scope: str = "levels", mask: Tensor | None = None
) -> Tensor:
    """Return l_h, the smallest losses above ``losses`` that satisfy the constraint.

    Args:
        losses: (N, C) elementwise losses.
        hierarchy: the taxonomy.
        scope: "levels" (the paper) or "ancestors".
        mask: (N, C) bool, which entries are known.
    """
    if scope not in SCOPES:
        raise HierlearnError(unknown_name("scope", str(scope), SCOPES))
    if losses.dim() != 2:
        raise HierlearnError(f"losses {tuple(losses.shape)} must be (N, {len(hierarchy)})")
    check(losses, len(hierarchy))
    if mask is None:
        return SCOPES[scope](losses, hierarchy)
    if mask.shape != losses.shape:
        raise HierlearnError(f"mask {tuple(mask.shape)} must match losses {tuple(losses.shape)}")
    bound = SCOPES[scope](losses.masked_fill(~mask, -torch.inf), hierarchy)
    return torch.where(mask, bound, torch.zeros_like(bound))


def by_levels(losses: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Carry a running maximum down the levels."""
    parts = list(torch.split(losses, list(hierarchy.level_sizes), dim=1))
    peak: Tensor | None = None  # (N, 1), the first maximizer of the levels above
    for level, part in enumerate(parts):
        if peak is not None:
            parts[level] = torch.where(part >= peak, part, peak)
        if level < len(parts) - 1:
            if part.device.type == "cpu" and not (torch.compiler.is_compiling() or in_transform()):
                # NumPy's argmax is vectorized along rows, torch's is not.
                places = part.detach().numpy().argmax(axis=1, keepdims=True)
                best = part.gather(1, torch.from_numpy(places))
            else:
                best = part.max(dim=1, keepdim=True).values
            peak = best if peak is None else torch.where(best > peak, best, peak)
    return torch.cat(parts, dim=1)


def by_ancestors(losses: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Find the first largest ancestor of every entry and take the maximum with it."""
    if hierarchy.depth == 1:
        return losses
    with torch.no_grad():
        above = first_largest_ancestor(losses, hierarchy)
    binding = losses.gather(1, above)
    return torch.where(losses >= binding, losses, binding)


def first_largest_ancestor(losses: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (N, C) the ancestor of largest loss, the first of several; the class if at the top."""
    route = routes_on(hierarchy, losses.device)
    rows = len(losses)
    starts = [columns.start for columns in hierarchy.level_slices]
    values = torch.split(losses, list(route.sizes), dim=1)
    # Best ancestor so far, level by level: its loss and its class.
    best = [torch.full_like(part, -torch.inf) for part in values]
    nobody = len(hierarchy)
    place = [
        torch.full((rows, size), nobody, dtype=torch.long, device=losses.device)
        for size in route.sizes
    ]
    for edge in route.edges:
        own = values[edge.upper].index_select(1, edge.parents)
        old = best[edge.upper].index_select(1, edge.parents)
        older = place[edge.upper].index_select(1, edge.parents)
        itself = (edge.parents + starts[edge.upper]).expand(rows, -1)
        # A parent ties with its own ancestors: those come first in class order.
        value = torch.maximum(own, old)
        number = torch.where((own > old) | (older == nobody), itself, older)
        index = edge.children.expand(rows, -1)
        peak = best[edge.lower].scatter_reduce(1, index, value, "amax")
        kept = torch.where(best[edge.lower] == peak, place[edge.lower], nobody)
        number = torch.where(value == peak.gather(1, index), number, nobody)
        place[edge.lower] = kept.scatter_reduce(1, index, number, "amin")
        best[edge.lower] = peak
    found = torch.cat(place, dim=1)
    itself = torch.arange(nobody, device=losses.device).expand(rows, -1)
    return torch.where(found == nobody, itself, found)


SCOPES: dict[str, Callable[[Tensor, Hierarchy], Tensor]] = {
    "levels": by_levels,
    "ancestors": by_ancestors,
}


# ---------------------------------------- the curriculum


def normalized(
    class_losses: Tensor, errors: Tensor, rows: int | Tensor, normalize: str
) -> tuple[Tensor, Tensor]:
    """Return what the selection compares, of class losses and errors summed over rows.

    Args:
        class_losses: (C,) or (M, C).
        errors: () or (M,), e_h.
        rows: how many rows were summed, or their weights.
        normalize: "sum" for both sums as they are (the paper), "mean" for both means over rows,
            "losses" for the means of class losses and the sum of errors.
    """
    if normalize == "sum":
        return class_losses, errors
    count = max(rows, 1) if isinstance(rows, int) else rows.clamp_min(1)
    of_members = isinstance(count, torch.Tensor) and count.dim() == 1
    means = class_losses / (count[:, None] if of_members else count)  # type: ignore[index]
    return means, errors / count if normalize == "mean" else errors


def select_classes(class_losses: Tensor, threshold: Tensor | float) -> Tensor:
    """Return (C,) bool: the classes that Algorithm 1 selects; (M, C) for M members at once.

    Args:
        class_losses: (C,) or (M, C) the summed loss of each class.
        threshold: C + e_h for the exact minimizer; a number, or a tensor () or (M,).
    """
    if class_losses.dim() not in (1, 2):
        raise HierlearnError(f"class losses {tuple(class_losses.shape)} must be (C,) or (M, C)")
    ordered, order = torch.sort(class_losses.detach(), stable=True)
    if isinstance(threshold, torch.Tensor) and threshold.dim() == 1:
        threshold = threshold[:, None]
    # Sums of thousands of losses are compared with integers: single precision is too coarse.
    positions = torch.arange(ordered.shape[-1], device=ordered.device)
    kept = ordered.cumsum(-1, dtype=torch.float64) + positions <= threshold
    return torch.zeros_like(kept).scatter(-1, order, kept)
