"""Coherence: how often a class is held more probable than its parent.

violations(i) = the number of edges (parent a, child c) with p(i, c) > p(i, a) + tolerance
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from hierlearn.decoding.chunks import row_chunks
from hierlearn.errors import HierlearnError
from hierlearn.metrics.inputs import as_probabilities, check_option, check_rows

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy

Reduction = Literal["mean", "sum", "none"]


def coherence_violations(
    probabilities: Tensor,
    hierarchy: Hierarchy,
    tolerance: float = 1e-6,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the number of edges a row whose child is more probable than the parent.

    Args:
        probabilities: (N, C) in [0, 1].
        hierarchy: the taxonomy.
        tolerance: by how much a child may exceed its parent without being counted.
        reduction: "mean" a row, "sum" over all rows, or "none" for (N,).
    """
    check_option("reduction", reduction, Reduction)
    check_tolerance(tolerance)
    p = as_probabilities(probabilities, hierarchy)
    child, parent = (
        torch.tensor(ends, device=p.device)
        for ends in (hierarchy.structure.edge_children, hierarchy.structure.parent_ids)
    )
    parts = []
    for rows in row_chunks(len(p), len(child)):
        part = p[rows].double()
        parts.append((part[:, child] > part[:, parent] + tolerance).sum(dim=1).double())
    found = torch.cat(parts)
    if reduction == "none":
        return found
    if reduction == "sum":
        return found.sum()
    check_rows(len(p), "coherence violations")
    return found.mean()


def check_tolerance(tolerance: float) -> None:
    """Refuse a tolerance below 0."""
    if not tolerance >= 0:
        raise HierlearnError(f"tolerance = {tolerance} must be 0 or more")
