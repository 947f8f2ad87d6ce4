"""Truth along the edges: is something true of a parent, of a child, of a common ancestor?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints


def any_parent(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Tell, for (n, C) bool, for which classes a parent is true."""
    structure = hierarchy.structure
    return _reach(x, structure.parent_ids, structure.edge_children)


def any_child(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Tell, for (n, C) bool, for which classes a child is true."""
    structure = hierarchy.structure
    return _reach(x, structure.edge_children, structure.parent_ids)


def _reach(x: Tensor, source: Ints, goal: Ints) -> Tensor:
    begin, end = (torch.tensor(ids, device=x.device) for ids in (source, goal))
    values = x.index_select(1, begin).int()  # (n, E)
    counts = torch.zeros(x.shape, dtype=torch.int32, device=x.device)
    return counts.scatter_add_(1, end.expand(len(x), -1), values) > 0


def topmost(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the true classes that have no true parent, (n, C) bool."""
    return x & ~any_parent(x, hierarchy)


def most_specific(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the true classes that have no true child, (n, C) bool."""
    return x & ~any_child(x, hierarchy)


def common_ancestors(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the classes at or above every true class, (n, C) bool; none where none is true."""
    tops = topmost(x, hierarchy).int()
    count = tops.sum(dim=1, keepdim=True)
    return (hierarchy.sum_up(tops) == count) & (count > 0)
