"""Coherent probabilities: the maximum over the descendants of each class, for many edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


class Coherence:
    """The maximum over the descendants of each class, fast for many edges on the CPU.

    Args:
        hierarchy: the taxonomy.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        structure = hierarchy.structure
        child, parent = structure.edge_children, structure.parent_ids
        self.edges = (child, parent)
        self.steps = []  # the edges above each level, the deepest first, sorted by parent
        for level in range(hierarchy.depth, 1, -1):
            some = np.flatnonzero(hierarchy.levels[child] == level)
            some = some[np.argsort(parent[some], kind="stable")]
            above, starts = np.unique(parent[some], return_index=True)
            self.steps.append((child[some], above, starts))

    def __call__(self, p: Tensor) -> Tensor:
        """Return (n, C) coherent probabilities."""
        if p.is_cuda:
            return self.hierarchy.max_up(p)
        columns = np.ascontiguousarray(p.numpy().T)  # (C, n): a class is one run of memory
        for child, above, starts in self.steps:
            most = np.maximum.reduceat(columns[child], starts, axis=0)
            columns[above] = np.maximum(columns[above], most)
        return torch.from_numpy(columns).T.contiguous()
