"""Cost: the class that is cheapest on average over where the row may end.

    c = argmin over candidates c of sum over t of q(t) cost(c, t),    q the terminal mass

"lca-height": the height of the lowest common ancestor of c and t. "path": the edges between c and
t. On a tree both are sums over the path from the root to c, so no C x C table is needed:

    E[height] = height(root) - sum over a in path(c) of p(a) (height(parent(a)) - height(a))
    E[edges]  = level(c) + E[level(t)] - 2 sum over a in path(c) of p(a)

What ends at the root costs height(root), or level(c). A cost given as a tensor has no column for
the root: what ends there is left out. The root is no candidate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.decoding.candidates import Candidates, candidate_classes
from hierlearn.decoding.decoder import Answers, Decoder
from hierlearn.errors import HierlearnError, shown, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace


def expected_lca_height(p: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (n, C) the expected height of the lowest common ancestor of each class; trees."""
    above = np.append(hierarchy.heights, hierarchy.root_height)[hierarchy.structure.first_parents]
    rise = torch.tensor(above - hierarchy.heights, dtype=p.dtype, device=p.device)
    return hierarchy.root_height - hierarchy.sum_down(p * rise)


def expected_path(p: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (n, C) the expected edges between each class and where the row ends; trees."""
    level = torch.tensor(hierarchy.levels, dtype=p.dtype, device=p.device)
    # A class of level m lies below m classes, itself one of them: E[level(t)] is the sum of p.
    return level + p.sum(dim=1, keepdim=True) - 2 * hierarchy.sum_down(p)


COSTS: dict[str, Callable[[Tensor, Hierarchy], Tensor]] = {
    "lca-height": expected_lca_height,
    "path": expected_path,
}


class Cost(Decoder):
    """The candidate of smallest expected cost; ties go to the first. Trees, or a cost tensor.

    Args:
        label_space: the taxonomy and its terminal classes; a DAG needs a cost tensor.
        cost: "lca-height", "path", or a tensor: cost[c, t] of answering c where t is true, (C, C),
            or (K, C) with one row per candidate in class order.
        candidates: what may be answered: "all" classes, the "leaves", or the "terminal" classes.
    """

    answers: Answers = "class"
    needs_tree = True
    needs_distribution = True

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        cost: str | Tensor = "lca-height",
        candidates: Candidates = "all",
    ) -> None:
        if not isinstance(cost, (str, torch.Tensor)):
            raise HierlearnError(
                f"cost must be {', '.join(map(repr, COSTS))} or a tensor, not {shown(cost)}"
            )
        self.needs_tree = isinstance(cost, str)
        super().__init__(label_space)
        self.candidates = candidate_classes(self.label_space, candidates)
        if isinstance(cost, str):
            if cost not in COSTS:
                raise HierlearnError(unknown_name("cost", cost, COSTS))
            self.cost: str | Tensor = cost
        elif not isinstance(cost, torch.Tensor):
            raise HierlearnError(
                f"cost must be one of {', '.join(COSTS)}, or in Python a tensor, not {cost!r}"
            )
        else:
            self.cost = candidate_rows(cost, self.candidates, len(self.hierarchy))

    def remedy(self) -> str:
        """Return the alternatives on a DAG, a cost tensor first."""
        return f"a cost tensor, or {super().remedy()}"

    def expected(self, p: Tensor) -> Tensor:
        """Return (n, K) the expected cost of each candidate."""
        if isinstance(self.cost, str):
            costs = COSTS[self.cost](p, self.hierarchy)
            return costs.index_select(1, self.candidates.to(p.device))
        return self.mass(p) @ self.cost.to(p).T

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the first candidate of smallest expected cost."""
        costs, candidates = self.expected(p), self.candidates.to(p.device)
        if allowed is not None:
            costs = costs.masked_fill(~allowed[candidates], torch.inf)
        return candidates[costs.argmin(dim=1)]


def candidate_rows(cost: Tensor, candidates: Tensor, classes: int) -> Tensor:
    """Return the (K, C) costs of the candidates, in double precision."""
    count = len(candidates)
    if cost.dim() != 2 or cost.shape[1] != classes or cost.shape[0] not in (classes, count):
        rows = f"({classes}, {classes})" + (f" or ({count}, {classes})" if count != classes else "")
        raise HierlearnError(f"cost {tuple(cost.shape)} must be {rows}")
    table = cost.detach().double()
    if not table.isfinite().all():
        row, column = (int(i) for i in (~table.isfinite()).nonzero()[0])
        raise HierlearnError(
            f"cost[{row}, {column}] is {table[row, column].item()}; costs must be finite"
        )
    return table if len(table) == count else table[candidates.to(table.device)]
