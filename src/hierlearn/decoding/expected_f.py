"""Expected F: the closed set that scores best on average over where the row may end.

    S = argmax over closed S of sum over t of q(t) F(S, T_t)
    F(S, T) = (1 + beta^2) |S n T| / (|S| + beta^2 |T|),    T_t = t and its ancestors

q is the terminal mass; what ends at the root has an empty T, scores 0 and counts for nothing. For a
fixed size |S| = k the sum is one of class weights,

    E[F] = sum over c in S of w_k(c),
    w_k(c) = (1 + beta^2) sum over t at or below c of q(t) / (k + beta^2 |T_t|),

and w_k never grows from a class to its child. So the k classes of largest weight, ancestors first
in a tie, are a closed set, and no other set of size k beats them. Sizes are tried upwards. No set
of size k scores more than

    (1 + beta^2) sum over t of q(t) |T_t| / (k + beta^2 |T_t|),

which falls in k: a row is done when this is no more than its best so far. Ties between sizes go to
the smaller set.

A row looks at its most probable classes first. A class outside has w_k <= (1 + beta^2) p / (k +
beta^2), p the largest outside; a row where this could reach the k-th weight inside is done again
with all classes, so the answer is exact always. Mass by |T_t| is summed upward once, and the
weights of all sizes come from it: O(N C) on a tree, then O(N M) per size for M classes per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.decoding.decoder import Answers, Decoder
from hierlearn.decoding.size_search import Shown, best_sets, best_sizes
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.propagate import routes_on

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace

MOST_PROBABLE = 128  # classes of a row that are looked at first


class ExpectedF(Decoder):
    """The closed set of largest expected F; trees and DAGs.

    Args:
        label_space: the taxonomy.
        beta: the weight of recall; more than 1 makes larger sets.
    """

    answers: Answers = "set"
    needs_distribution = True

    def __init__(self, label_space: LabelSpace | Hierarchy, beta: float = 1.0) -> None:
        super().__init__(label_space)
        if not 0 < beta < float("inf"):
            raise HierlearnError(f"beta must be positive and finite, not {beta}")
        self.beta = float(beta)
        truth_sizes = np.diff(self.hierarchy.structure.closure[0])  # |T_t| of each class
        sizes = np.unique(truth_sizes)
        self.sizes = torch.tensor(sizes, dtype=torch.float64)  # (S,)
        self.of_size = [torch.tensor(truth_sizes == size) for size in sizes]
        self.width *= len(sizes)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Search among the most probable classes, and where that is not sure among all."""
        below, ending = self.by_size(self.mass(p))
        if allowed is not None:  # a class without mass is never worth its place
            below = [part.where(allowed[: part.shape[1]], 0.0) for part in below]
        inside = sum_of(below)  # (n, C): p, but sure to fall along every path
        out = torch.zeros(p.shape, dtype=torch.bool, device=p.device)
        sizes, eps = self.sizes.to(p.device), torch.finfo(p.dtype).eps
        rows = torch.arange(len(p), device=p.device)
        for most in (MOST_PROBABLE, len(self.hierarchy)):
            columns, outside = most_probable(inside[rows], most)
            shown = Shown(
                torch.stack([columns_of(part[rows], columns) for part in below]).double(),
                outside.squeeze(1).double(),
                ending[rows],
            )
            size, sure = best_sizes(shown, sizes, self.beta, eps)
            chosen = torch.zeros((len(rows), p.shape[1]), dtype=torch.bool, device=p.device)
            out[rows] = chosen.scatter_(1, columns, best_sets(shown, size, sizes, self.beta))
            rows = rows[~sure]
            if not len(rows):
                break
        return out

    def by_size(self, q: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the mass at or below each class by the size of the truth, and its sum.

        Returns:
            S tensors (n, W), the first W classes, those after them being 0; and (n, S) float64.
        """
        if not self.hierarchy.is_tree:
            parts = [q.where(chosen.to(q.device), 0.0) for chosen in self.of_size]
            # A sum over more classes may round to less than one over fewer; its maximum does not.
            below = [self.hierarchy.max_up(self.hierarchy.sum_up(part)) for part in parts]
            return below, torch.stack([part.sum(dim=1) for part in parts], dim=1).double()
        # In a tree the size of the truth is the level, and a level has mass only above it.
        edges = routes_on(self.hierarchy, q.device).edges
        slices = self.hierarchy.level_slices
        below = []
        for level, columns in enumerate(slices):
            part = torch.zeros((len(q), columns.stop), dtype=q.dtype, device=q.device)
            part[:, columns] = q[:, columns]
            for edge in reversed(edges[:level]):
                upper, lower = part[:, slices[edge.upper]], part[:, slices[edge.lower]]
                upper.scatter_add_(1, edge.parents.expand(len(q), -1), lower)
            below.append(part)
        tops = [part[:, slices[0]].sum(dim=1) for part in below]
        return below, torch.stack(tops, dim=1).double()


def sum_of(below: list[Tensor]) -> Tensor:
    """Return (n, C) the sum of the parts, each over the first classes only."""
    inside = below[-1].clone()
    for part in reversed(below[:-1]):
        inside[:, : part.shape[1]] += part
    return inside


def columns_of(part: Tensor, columns: Tensor) -> Tensor:
    """Return (n, M) the given columns of a part, 0 where it ends before."""
    found = part.gather(1, columns.clamp_max(part.shape[1] - 1))
    return found.masked_fill_(columns >= part.shape[1], 0.0)


def most_probable(inside: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return the columns of the largest values per row, ascending, and the largest value left out.

    Of values that tie with the largest left out any may be among the columns; none of them passes
    the bound on what is outside. Where nothing is left out its value is 0.
    """
    count = inside.shape[1]
    if most >= count:
        columns = torch.arange(count, device=inside.device).expand(len(inside), -1)
        return columns, inside.new_zeros((len(inside), 1))
    values, columns = inside.topk(most + 1, dim=1)
    return columns[:, :-1].sort(dim=1).values, values[:, -1:]
