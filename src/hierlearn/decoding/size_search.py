"""The best size of a set whose score is a sum of class weights that depend on the size.

    w_k(c) = (1 + beta^2) sum over sizes s of m_s(c) / (k + beta^2 s)

m_s(c) is the mass at or below c of the classes whose truth (a class and its ancestors) has size s.
Of each row only some columns are shown; ``expected_f`` says why that may be enough and when not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

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
