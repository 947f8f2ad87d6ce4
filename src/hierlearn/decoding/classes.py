"""Decoders that answer one class per row.

Argmax: the most probable class of all, inner ones included, as in the paper.

    c = argmax over all classes of p

Ties go to the first class, so to the shallowest. Under a coherent link a class is never more
probable than its parent, so the answer is a top class; under the sigmoid link it may lie anywhere.

Leaf: the most probable leaf, or the most probable of the terminal classes.

    c = argmax over the leaves of p(c)
    c = argmax over the terminal classes of p(c) - the sum of p over the children of c

An inner class that is terminal is scored by the probability that ends at it: under a coherent link
its p is never smaller than its descendants', and would always win.

Top-down: from the root to the most probable child, until a leaf.

    c_1 = argmax over top classes of p,    c_(j+1) = argmax over children k of c_j of p(k)

Ties go to the first class. A step reads the children of one class per row, so a row costs the
fan-outs along its chain and not C. In a DAG the chain is one of several paths to its last class.

Cost: the class that is cheapest on average over where the row may end.

    c = argmin over candidates c of sum over t of q(t) cost(c, t),    q the terminal mass

"lca-height": the height of the lowest common ancestor of c and t. "path": the edges between c and
t. On a tree both are sums over the path from the root to c, so no C x C table is needed:

    E[height] = height(root) - sum over a in path(c) of p(a) (height(parent(a)) - height(a))
    E[edges]  = level(c) + E[level(t)] - 2 sum over a in path(c) of p(a)

What ends at the root costs height(root), or level(c). A cost given as a tensor has no column for
the root: what ends there is left out. The root is no candidate.

Balanced: the terminal class that is best on average, mostly for being exact, partly for its F1 with
where the row ends, by the classes at or above each:

    c = argmax over terminal classes c of w q(c) + (1 - w) sum over t of q(t) 2 level(lca(c, t)) /
        (level(c) + level(t)),    w = 3/4

The sum over t is one over the path to c, for each level of a terminal class: with q_l the mass of
the terminal classes of level l, summed upward, that is 2 / (level(c) + l) sum over a in path(c) of
q_l(a). A shallow class that is likely wins over a deep one that is less so, and a branch that is
likely over a class of another one. ``exact=1`` is the decoder leaf, ``exact=0`` hierarchical F1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.decoding.decoder import ROOT, Answers, Decoder
from hierlearn.decoding.probabilities import Candidates, candidate_classes, terminal_scores
from hierlearn.errors import HierlearnError, shown, unknown_name
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_chunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


class Argmax(Decoder):
    """The most probable class of all.

    Args:
        label_space: the taxonomy.
    """

    answers: Answers = "class"

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the first class of largest p."""
        if allowed is not None:
            p = p.masked_fill(~allowed, -1.0)  # below every probability
        return p.argmax(dim=1)


# ---------------------------------------- leaf


class Leaf(Decoder):
    """The most probable leaf, or terminal class of the label space; ties go to the first.

    Args:
        label_space: the taxonomy and its terminal classes.
    """

    answers: Answers = "class"
    keeps_order = True

    def __init__(self, label_space: LabelSpace | Hierarchy) -> None:
        super().__init__(label_space)
        self.terminals = self.label_space.terminal_ids()

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the first terminal class of largest p, or terminal score if some are inner."""
        inner = self.label_space.has_inner_terminals
        scores = terminal_scores(p, self.label_space) if inner else p
        terminals = self.terminals.to(p.device)
        if allowed is not None:
            terminals = terminals[allowed[terminals]]
        return terminals[scores.index_select(1, terminals).argmax(dim=1)]


# ---------------------------------------- top down


def greedy_chain(p: Tensor, label_space: LabelSpace | Hierarchy) -> Tensor:
    """Return the classes met from the root down by always taking the most probable child.

    Args:
        p: (N, C) node probabilities.
        label_space: the taxonomy, a tree or a DAG.

    Returns:
        (N, L) int64, L the number of levels: the chain, padded with -1 after its leaf.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    structure = hierarchy.structure
    offsets, ids = (torch.tensor(part, device=p.device) for part in structure.children)
    tops = hierarchy.level_sizes[0]
    chain = torch.full((len(p), hierarchy.depth), ROOT, dtype=torch.long, device=p.device)
    for rows in row_chunks(len(p), max(tops, int(offsets.diff().max()))):
        here = p[rows, :tops].argmax(dim=1)  # (n,) argmax gives the first of several
        number = torch.arange(len(p), device=p.device)[rows]
        chain[rows, 0] = here
        for step in range(1, hierarchy.depth):
            fan_out = offsets[here + 1] - offsets[here]
            walking = fan_out > 0
            number, here, fan_out = number[walking], here[walking], fan_out[walking]
            if not len(here):
                break
            column = torch.arange(int(fan_out.max()), device=p.device)
            # Padding repeats the last child, which then cannot win before it has won itself.
            column = torch.minimum(column, fan_out[:, None] - 1)  # (n, widest)
            children = ids[offsets[here][:, None] + column]
            best = p[number[:, None], children].argmax(dim=1, keepdim=True)
            here = children.gather(1, best).squeeze(1)
            chain[number, step] = here
    return chain


def last_of(chain: Tensor) -> Tensor:
    """Return (N,) the last class of each chain; -1 for an empty one."""
    length = (chain != ROOT).sum(dim=1, keepdim=True)  # (N, 1)
    last = chain.gather(1, (length - 1).clamp_min(0)).squeeze(1)
    return torch.where(length.squeeze(1) > 0, last, ROOT)


class TopDown(Decoder):
    """The leaf at the end of the greedy chain; trees.

    Args:
        label_space: the taxonomy, a tree.
    """

    answers: Answers = "class"
    needs_tree = True

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Walk down and answer the leaf."""
        if allowed is not None:
            p = p.masked_fill(~allowed, -1.0)  # below every probability
        return last_of(greedy_chain(p, self.label_space))


# ---------------------------------------- cost


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


class Balanced(Decoder):
    """The terminal class of the best expected mean of exactness and hierarchical F1; trees.

    Args:
        label_space: the taxonomy and its terminal classes.
        exact: w, from 0 to 1.
    """

    answers: Answers = "class"
    needs_tree = True

    def __init__(self, label_space: LabelSpace | Hierarchy, exact: float = 0.9) -> None:
        super().__init__(label_space)
        if not isinstance(exact, (int, float)) or isinstance(exact, bool) or not 0 <= exact <= 1:
            raise HierlearnError(f"exact must lie between 0 and 1, not {shown(exact)}")
        self.exact = float(exact)
        self.terminals = self.label_space.terminal_ids()
        self.levels = torch.from_numpy(np.array(self.hierarchy.levels)[self.terminals.numpy()])

    def expected(self, p: Tensor) -> Tensor:
        """Return (n, T) what each terminal class is worth."""
        hierarchy, terminals = self.hierarchy, self.terminals.to(p.device)
        inner = self.label_space.has_inner_terminals
        mass = (terminal_scores(p, self.label_space).clamp_min(0) if inner else p)[:, terminals]
        worth = self.exact * mass
        levels = self.levels.to(p.device)
        for level in sorted(set(self.levels.tolist())):
            ends = torch.zeros_like(p).index_copy(1, terminals, mass * (levels == level))
            shared = hierarchy.sum_down(hierarchy.sum_up(ends)).index_select(1, terminals)
            worth = worth + (1 - self.exact) * 2 * shared / (levels + level)
        return worth

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the first terminal class that is worth most."""
        worth, terminals = self.expected(p), self.terminals.to(p.device)
        if allowed is not None:
            worth = worth.masked_fill(~allowed[terminals], -torch.inf)
        return terminals[worth.argmax(dim=1)]


class HierF1(Balanced):
    """The terminal class of the best expected hierarchical F1: ``Balanced`` with exact 0; trees.

    Args:
        label_space: the taxonomy and its terminal classes.
    """

    def __init__(self, label_space: LabelSpace | Hierarchy) -> None:
        super().__init__(label_space, 0.0)


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
        if isinstance(cost, str) and cost not in COSTS:
            raise HierlearnError(unknown_name("cost", cost, COSTS))
        self.cost = cost if isinstance(cost, str) else self._checked(cost)

    def _checked(self, cost: Tensor) -> Tensor:
        """Return the (K, C) costs of the candidates, in double precision."""
        candidates, classes = self.candidates, len(self.hierarchy)
        count = len(candidates)
        if cost.dim() != 2 or cost.shape[1] != classes or cost.shape[0] not in (classes, count):
            more = f" or ({count}, {classes})" if count != classes else ""
            raise HierlearnError(f"cost {tuple(cost.shape)} must be ({classes}, {classes}){more}")
        table = cost.detach().double()
        if not table.isfinite().all():
            row, column = (int(i) for i in (~table.isfinite()).nonzero()[0])
            raise HierlearnError(
                f"cost[{row}, {column}] is {table[row, column].item()}; costs must be finite"
            )
        return table if len(table) == count else table[candidates.to(table.device)]

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
