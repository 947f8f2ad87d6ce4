"""Decoders that answer a set of classes, and Subset, which limits another decoder.

Coherent: the classes at or above one that is probable enough.

    S = {c : max over c and its descendants d of p(d) >= threshold}

The maximum makes p coherent, so that S is closed under ancestors whatever the link.

Subset: decide as if the row were known to end in some of the subtrees.

    q'(t) = q(t) / sum of q over the allowed subtrees, 0 outside them
    p'(c) = sum over c and its descendants of q'

An allowed class stands for itself and everything below it. The kept classes are these and their
ancestors; another decoder decides on p', with the levels, heights and sizes of the whole
hierarchy, and never answers a class that is not kept. A row without mass in the allowed subtrees
answers the root, or the empty set.

The best size of a set is searched where its score is a sum of class weights that depend on it.

    w_k(c) = (1 + beta^2) sum over sizes s of m_s(c) / (k + beta^2 s)

m_s(c) is the mass at or below c of the classes whose truth (a class and its ancestors) has size s.
Of each row only some columns are shown; below is why that may be enough, and when not.

Expected F: the closed set that scores best on average over where the row may end.

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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.decoding.decoder import ROOT, Answers, Decoder
from hierlearn.decoding.probabilities import as_tensor, check_fraction, checked_rows, slack_of
from hierlearn.errors import HierlearnError, LabelError
from hierlearn.hierarchy.propagate import routes_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from hierlearn.decoding.probabilities import Probabilities
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.hierarchy.names import Label


class Coherent(Decoder):
    """The set of classes whose p, or that of a descendant, reaches the threshold.

    Args:
        label_space: the taxonomy.
        threshold: the smallest p of a class in the set.
    """

    answers: Answers = "set"

    def __init__(self, label_space: LabelSpace | Hierarchy, threshold: float = 0.5) -> None:
        super().__init__(label_space)
        self.threshold = check_fraction("threshold", threshold)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Take the maximum over the descendants and compare."""
        chosen = self.hierarchy.max_up(p) >= self.threshold
        return chosen if allowed is None else chosen & allowed


# ---------------------------------------- subset


class Subset(Decoder):
    """Another decoder, given that the row ends at or below one of the allowed classes.

    Args:
        label_space: the taxonomy and its terminal classes.
        allowed: the classes, names or numbers, whose subtrees the row may end in.
        decoder: a name of ``DECODERS`` or a decoder of the same hierarchy.
        options: what the decoder takes, if it is given by name.
    """

    needs_distribution = True
    takes_anything = True  # whatever the other decoder does

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        allowed: Iterable[Label],
        decoder: str | Decoder = "argmax",
        **options: Any,
    ) -> None:
        from hierlearn.decoding import make_decoder  # the registry imports this module

        super().__init__(label_space)
        hierarchy = self.hierarchy
        if isinstance(allowed, str):
            raise LabelError(f"give a list of classes, not one text {allowed!r}")
        numbers = [hierarchy.index(label) for label in allowed]
        if not numbers:
            raise HierlearnError("allowed names no class; a subset needs at least one")
        self.decoder = make_decoder(self.label_space, decoder, **options)
        self.answers = self.decoder.answers
        self.needs_tree = self.decoder.needs_tree
        self.width = max(self.width, self.decoder.width)
        named = torch.zeros(len(hierarchy), dtype=torch.uint8)
        named[numbers] = 1
        self.inside = hierarchy.max_down(named).bool()  # (C,) the allowed subtrees

    def renormalized(self, probabilities: Probabilities) -> Tensor:
        """Return (N, C) p', all 0 for a row without mass in the allowed subtrees."""
        nodes, parts = as_tensor(probabilities), []
        with torch.no_grad():
            for rows, p in checked_rows(nodes, self.hierarchy, self.width):
                self.mass.check(p, rows.start, slack_of(nodes.dtype))
                parts.append(self.given_inside(p))
        return torch.cat(parts)

    def given_inside(self, p: Tensor) -> Tensor:
        """Return (n, C) p' of rows that are known to add up."""
        q = self.mass(p).masked_fill_(~self.inside.to(p.device), 0.0)
        total = q.sum(dim=1, keepdim=True)
        q /= torch.where(total > 0, total, 1.0)
        return self.hierarchy.sum_up(q)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Apply the other decoder to the kept classes."""
        inside = self.inside.to(p.device)
        if allowed is not None:
            inside = inside & allowed
        kept = self.hierarchy.max_up(inside.to(torch.uint8)).bool()
        inner = self.given_inside(p)
        some = inner.any(dim=1)  # the rows with mass there
        if self.answers == "class":
            out = torch.full_like(some, ROOT, dtype=torch.long)
        else:
            out = torch.zeros_like(p, dtype=torch.bool)
        if some.any():
            out[some] = self.decoder.decide(inner[some], kept)
        return out


# ---------------------------------------- size search

CLEAR = 1 + 1e-5  # how far a weight must pass the bound on those not shown, for rounding's sake
TIE = 8  # units of rounding within which two sizes score the same


@dataclass
class Shown:
    """What is known of n rows when M columns of each are shown."""

    masses: Tensor  # (S, n, M) float64: m_s of the columns
    outside: Tensor  # (n,) float64: the largest p that is not shown, 0 if all mass is
    ending: Tensor  # (n, S) float64: all mass of the row, by the size of the truth

    def rows(self, keep: Tensor) -> Shown:
        """Return these rows only."""
        return Shown(self.masses[:, keep], self.outside[keep], self.ending[keep])

    def weights(self, factors: Tensor) -> Tensor:
        """Return (n, M) the sum over sizes of mass times factor, (S,) or (S, n, 1).

        Products are added in one order, so that a class never passes its parent by rounding.
        """
        total = self.masses[0] * factors[0]
        for mass, factor in zip(self.masses[1:], factors[1:], strict=True):
            total += mass * factor
        return total


def size_factors(k: Tensor | int, sizes: Tensor, beta: float) -> Tensor:
    """Return (1 + beta^2) / (k + beta^2 s) for each size s of a truth."""
    return (1 + beta**2) / (k + beta**2 * sizes)


def best_sizes(shown: Shown, sizes: Tensor, beta: float, eps: float) -> tuple[Tensor, Tensor]:
    """Return (n,) the best size of each row, and (n,) bool whether the columns shown prove it.

    Args:
        shown: the columns.
        sizes: (S,) float64, the sizes of truths, ascending.
        beta: the weight of recall.
        eps: the rounding of the masses.
    """
    best = torch.zeros_like(shown.outside)
    size = torch.zeros_like(shown.outside, dtype=torch.long)  # 0: the empty set
    sure = torch.ones_like(size, dtype=torch.bool)
    active = torch.arange(len(size), device=size.device)
    tie = 1 + TIE * eps
    for k in range(1, shown.masses.shape[2] + 1):
        factors = size_factors(k, sizes, beta)
        limit = (shown.ending * (sizes * factors)).sum(dim=1)
        going = limit > best[active] * tie
        if not going.all():
            active, shown = active[going], shown.rows(going)
        if not len(active):
            return size, sure
        largest = shown.weights(factors).topk(k, dim=1).values  # (n, k), falling
        least = largest[:, -1]
        unsure = (shown.outside > 0) & (least <= CLEAR * factors[0] * shown.outside)
        sure[active[unsure]] = False
        # A class without mass makes the set larger and adds nothing: no larger size can win.
        going = ~unsure & (least > 0)
        score = largest.sum(dim=1)
        wins = going & (score > best[active] * tie)
        best[active[wins]], size[active[wins]] = score[wins], k
        active, shown = active[going], shown.rows(going)
    sure[active[shown.outside > 0]] = False  # a larger set might win, but cannot be shown
    return size, sure


def best_sets(shown: Shown, size: Tensor, sizes: Tensor, beta: float) -> Tensor:
    """Return (n, M) bool: of each row the columns of largest weight, the first in a tie."""
    weights = shown.weights(size_factors(size[:, None], sizes[:, None, None], beta))
    order = weights.sort(dim=1, descending=True, stable=True).indices
    first = torch.arange(weights.shape[1], device=size.device) < size[:, None]
    return torch.zeros_like(first).scatter_(1, order, first)


# ---------------------------------------- expected f

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
