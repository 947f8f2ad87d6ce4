"""Label sets along the edges: the topmost and most specific classes, and common ancestors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.hierarchy.structure import row_chunks

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace


def topmost(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the true classes that have no true parent, (N, C) bool."""
    structure = hierarchy.structure
    parent = torch.tensor(structure.parent_ids, device=x.device)
    child = torch.tensor(structure.edge_children, device=x.device)
    covered = torch.zeros(x.shape, dtype=torch.int32, device=x.device)
    for rows in row_chunks(*x.shape):
        values = x[rows].index_select(1, parent).int()  # (n, E)
        covered[rows].scatter_add_(1, child.expand(len(values), -1), values)
    return x & (covered == 0)


def most_specific(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the true classes that have no true child, (N, C) bool."""
    structure = hierarchy.structure
    offsets = torch.tensor(structure.parent_offsets, device=x.device)
    parents = torch.tensor(structure.parent_ids, device=x.device)
    out = x.clone()
    for rows in row_chunks(*x.shape):
        row, number = x[rows].nonzero(as_tuple=True)
        fan_in = offsets[number + 1] - offsets[number]
        row = row.repeat_interleave(fan_in)
        first = (offsets[number] - (fan_in.cumsum(0) - fan_in)).repeat_interleave(fan_in)
        out[rows][row, parents[first + torch.arange(len(row), device=x.device)]] = False
    return out


def common_ancestors(x: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return the classes at or above every true class, (N, C) bool; none where none is true."""
    tops = topmost(x, hierarchy).int()
    count = tops.sum(dim=1, keepdim=True)
    return (hierarchy.sum_up(tops) == count) & (count > 0)


def covering_subtrees(x: Tensor, label_space: LabelSpace) -> Tensor:
    """Return the classes whose subtrees make up sets that are closed under ancestors, (N, C) bool.

    Of the classes with every terminal class at or below them in the set these are the topmost; a
    single terminal class stands for itself. A most specific class of the set whose subtree is not
    in it, which is an inner terminal class, is among them too.

    Args:
        x: (N, C) bool, closed under ancestors.
        label_space: the taxonomy and its terminal classes.
    """
    hierarchy = label_space.hierarchy
    ends = torch.tensor(label_space.is_terminal, device=x.device)
    total = hierarchy.sum_up(ends.int())  # (C,)
    whole = x & (hierarchy.sum_up((x & ends).int()) == total)
    tops = topmost(whole, hierarchy)
    single = tops & (total == 1)  # of a chain the class that is terminal
    if (single & ~ends).any():
        below = hierarchy.max_down(single.to(torch.uint8)).bool() & ends
        tops = (tops & ~single) | below
    return tops | (most_specific(x, hierarchy) & ~whole)
