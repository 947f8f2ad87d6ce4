"""Coherence: how often a class is more probable than its parent.

violations(i) = the number of edges (parent a, child c) with p(i, c) > p(i, a) + tolerance
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_chunks
from hierlearn.metrics.inputs import as_probabilities, check_option
from hierlearn.metrics.metric import Metric
from hierlearn.metrics.rows import check_rows

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.metrics.inputs import Scores, Space

Reduction = Literal["mean", "sum", "none"]


def coherence_violations(
    probabilities: Scores,
    label_space: Space,
    *,
    tolerance: float = 1e-6,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the number of edges per row whose child is more probable than the parent.

    Args:
        probabilities: (N, C) in [0, 1].
        label_space: the taxonomy.
        tolerance: by how much a child may exceed its parent without being counted.
        reduction: "mean" over the rows, "sum" over all rows, or "none" for (N,).
    """
    check_option("reduction", reduction, Reduction)
    check_tolerance(tolerance)
    hierarchy = LabelSpace.of(label_space).hierarchy
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
    """Raise for a tolerance below 0."""
    if not tolerance >= 0:
        raise HierlearnError(f"tolerance = {tolerance} must be 0 or more")


def _entry(probabilities: Scores, _: Any, label_space: Space, **options: Any) -> Tensor:
    """Return the violations with the arguments of every metric; targets are not used."""
    return coherence_violations(probabilities, label_space, **options)


ENTRIES = (
    Metric(
        "coherence-violations",
        _entry,
        "edges per row whose child is more probable than its parent",
        direction="down",
        unit="count",
        module_class="CoherenceViolations",
        limits=lambda h: (0.0, float(len(h.structure.parent_ids))),
        takes="probabilities",
        per_row=True,
    ),
)
