"""Terminal mass: what part of a row's probability ends at each class.

    p(c) = sum over c and its descendants d, each once, of q(d)

On a tree q(c) = p(c) - the sum of p over the children of c. In a DAG, where a class may lie below
two of the children, the equations are solved from the leaves up. What is left of 1 ends at the
root. q exists where p adds up: the classes below c hold at most p(c), all of them at most 1.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.decoding.probabilities import as_tensor, checked_rows, slack_of
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_width

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.decoding.probabilities import Probabilities
    from hierlearn.hierarchy import Hierarchy

REMEDY = "use a link whose probabilities add up, such as 'softmax'"


class TerminalMass:
    """The map from p to q of one hierarchy.

    Args:
        hierarchy: the taxonomy.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        # What each step subtracts from the classes ``above``: the q, or on a tree p, of ``below``.
        self.steps: list[tuple[Tensor, Tensor]] = []
        structure = hierarchy.structure
        if hierarchy.is_tree:
            self.steps.append(
                (torch.tensor(structure.edge_children), torch.tensor(structure.parent_ids))
            )
            return
        offsets, above = structure.closure
        below = np.repeat(np.arange(len(hierarchy)), np.diff(offsets))
        below, above = below[below != above], above[below != above]
        height = structure.heights[above]
        order = np.argsort(height, kind="stable")
        ends = np.searchsorted(height[order], np.arange(1, hierarchy.root_height + 1))
        for begin, end in pairwise(ends.tolist()):
            part = order[begin:end]
            self.steps.append((torch.tensor(below[part]), torch.tensor(above[part])))

    def __call__(self, p: Tensor) -> Tensor:
        """Return q (n, C) of probabilities that add up; negative rounding becomes 0."""
        return self.raw(p).clamp_min_(0)

    def raw(self, p: Tensor) -> Tensor:
        """Return q (n, C), negative where p does not add up."""
        q = p.clone()
        for below, above in self.steps:
            values = q.index_select(1, below.to(p.device)).neg_()
            # A tree has one step, and its values were read before any is written.
            q.scatter_add_(1, above.to(p.device).expand(values.shape), values)
        return q

    def check(self, p: Tensor, first_row: int, slack: float) -> None:
        """Raise for probabilities that do not add up.

        Args:
            p: (n, C) float32 or float64.
            first_row: the number of the first of these rows.
            slack: the rounding to allow for.

        Raises:
            HierlearnError: naming the first row, and in it the first class, the root before all.
        """
        q = self.raw(p)
        total = q.sum(dim=1)
        odd = (total > 1 + slack) | (q < -slack).any(dim=1)
        if not odd.any():
            return
        row = int(odd.nonzero()[0])
        where = f"row {first_row + row}"
        below = "the children of {} sum" if self.hierarchy.is_tree else "the classes below {} come"
        if total[row] > 1 + slack:
            tops = "the top classes sum" if self.hierarchy.is_tree else "all classes come"
            raise HierlearnError(f"{where}: {tops} to {total[row]:.4g}, more than 1; {REMEDY}")
        number = int((q[row] < -slack).nonzero()[0])
        own = p[row, number]
        raise HierlearnError(
            f"{where}: {below.format(repr(self.hierarchy.names[number]))} to "
            f"{own - q[row, number]:.4g}, more than its own {own:.4g}; {REMEDY}"
        )


@torch.no_grad()
def terminal_mass(p: Probabilities, label_space: LabelSpace | Hierarchy) -> Tensor:
    """Return (N, C) the mass that ends at each class.

    Args:
        p: (N, C) node probabilities that add up.
        label_space: the taxonomy, a tree or a DAG.

    Raises:
        HierlearnError: naming the first row and class where they do not.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    solve = TerminalMass(hierarchy)
    nodes, parts = as_tensor(p), []
    for rows, part in checked_rows(nodes, hierarchy, row_width(hierarchy)):
        solve.check(part, rows.start, slack_of(nodes.dtype))
        parts.append(solve(part))
    return torch.cat(parts)


def terminal_scores(p: Probabilities, label_space: LabelSpace | Hierarchy) -> Tensor:
    """Return (N, C) the p of each class minus that of its children.

    Scores by which an inner terminal class can be compared with the classes below it: under a
    coherent link the p of a class is never smaller than its descendants', so by p alone it would
    always win. On a tree this is the terminal mass, wherever p adds up; elsewhere it is a score and
    not a probability.

    Args:
        p: (N, C) node probabilities.
        label_space: the taxonomy, a tree or a DAG.
    """
    p, structure = as_tensor(p), LabelSpace.of(label_space).hierarchy.structure
    child = torch.tensor(structure.edge_children, device=p.device)
    parent = torch.tensor(structure.parent_ids, device=p.device)
    return p.index_add(1, parent, p.index_select(1, child), alpha=-1)


def widened_logs(log_p: Tensor) -> Tensor:
    """Return the logs in double precision of what decoders read, the exp of log-probabilities.

    What is equal after the exp is equal here, so that no order is seen that a decoder does not see;
    where the exp underflows the logs stay as they are.
    """
    p = log_p.exp()
    tiny = torch.finfo(p.dtype).tiny
    return torch.where(p > tiny, p.double().log(), log_p.double())


def terminal_log_distribution(log_p: Tensor, label_space: LabelSpace | Hierarchy) -> Tensor:
    """Return (N, T) the log-probability that a row ends at each terminal class; exp sums to 1.

    What is left at the other classes and at the root is spread in proportion; where nothing is
    left of the terminal classes, all are alike. The decoder ``leaf`` answers the largest.

    Args:
        log_p: (N, C) log node probabilities.
        label_space: the taxonomy and its T terminal classes.
    """
    space = LabelSpace.of(label_space)
    terminals = space.terminal_ids(log_p.device)
    found = widened_logs(log_p).index_select(1, terminals)
    if space.has_inner_terminals:
        inner = torch.tensor(space.hierarchy.heights > 0).to(log_p.device)[terminals]
        ends = terminal_scores(log_p.exp(), space).clamp_min(0).double().log()
        found = torch.where(inner, ends.index_select(1, terminals), found)
    total = found.logsumexp(dim=1, keepdim=True)
    return torch.where(total.isfinite(), found - total, -math.log(found.shape[1]))
