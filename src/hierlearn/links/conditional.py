"""The conditional link: a chain of sigmoids down the path.

    p(c) = product over c and its ancestors a of sigmoid(x_a)

where sigmoid(x_a) is the probability of a class given its parents. In a DAG every ancestor counts
once. Outside a class lies the outside of its parent, or the class misses inside its parent:

    1 - p(c) = (1 - p(parent)) + p(parent) * (1 - sigmoid(x_c))

which a tree sums from the top down. In a DAG, 1 - p = -expm1(log p); where that drops below
single precision, the sum of the ancestors' 1 - sigmoid, to which it is then equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import logsigmoid

from hierlearn.hierarchy.propagate import LOG_ZERO, add_at, log_add, routes_on, select
from hierlearn.links.link import HALF, Link

if TYPE_CHECKING:
    from torch import Tensor

CLOSE = 1e-6  # below this 1 - p, products of two 1 - sigmoid do not count


class ConditionalLink(Link):
    """Probabilities given the parents, multiplied down the path; coherent."""

    coherent = True

    def prior_logits(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> Tensor:
        """Return the log-odds of each class among the rows of its rarest parent."""
        del terminal_counts
        structure = self.hierarchy.structure
        above = torch.full_like(counts, float(rows)).scatter_reduce(
            0,
            torch.tensor(structure.edge_children, device=counts.device),
            counts[torch.tensor(structure.parent_ids, device=counts.device)],
            "amin",
        )
        return torch.log((counts + HALF) / (above - counts + HALF))

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log of the product down the path, and of its complement."""
        given, missed = logsigmoid(logits), logsigmoid(-logits)
        inside = self.hierarchy.sum_down(given)
        if self.hierarchy.is_tree:
            return inside, self.log_outside(inside, missed)
        return inside, self.log_outside_dag(inside, missed)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return the log of the product down the path."""
        return self.hierarchy.sum_down(logsigmoid(logits))

    def log_outside(self, inside: Tensor, missed: Tensor) -> Tensor:
        """Sum the complement of a tree level by level."""
        route = routes_on(self.hierarchy, inside.device)
        levels = torch.split(inside, list(route.sizes), dim=-1)
        misses = torch.split(missed, list(route.sizes), dim=-1)
        parts = [misses[0]]
        for edge in route.edges:
            here = select(levels[edge.upper], edge.parents) + misses[edge.lower]
            parts.append(log_add(select(parts[-1], edge.parents), here))
        return torch.cat(parts, dim=-1)

    def log_outside_dag(self, inside: Tensor, missed: Tensor) -> Tensor:
        """Take the complement of a DAG where it is large, and its first-order sum where not."""
        route = routes_on(self.hierarchy, inside.device)
        assert route.closure is not None
        below, above = route.closure
        with torch.no_grad():
            peak = self.hierarchy.max_down(missed).clamp_min(LOG_ZERO)
        terms = (select(missed, above) - select(peak, below)).exp()
        summed = peak + add_at(torch.zeros_like(missed), below, terms).log()
        far = inside < -CLOSE
        exact = (-torch.where(far, inside, -1.0).expm1()).log()
        return torch.where(far, exact, summed)
