"""The hierarchical constraint: no class is cheaper than a shallower one (equation 2 of the paper).

    l_h(i, j) = max(l(i, j), max over k that bind j of l(i, k))        equation 10 (Corollary 1)

Scope "levels": every class of a smaller level binds j, m(k) < m(j), as in the paper. Scope
"ancestors": only the ancestors of j. On the 0-1 errors of equation 1 this is the e_h of equation 3.
An unknown entry binds nobody and is 0 itself.

The gradient of an entry belongs to whoever attains the maximum: the class itself where it ties,
else the first maximizer in class order. Cost: O(N * C) for levels, O(N * (C + E)) for ancestors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.hierarchy.propagate import check, routes_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy

Scope = Literal["levels", "ancestors"]


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
            # max over a dimension sends its gradient to the index it returns: the first.
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
