"""SMACOF: points whose distances come as close as they can to given ones, by majorization.

    stress(X) = sum over pairs i < j of w_ij (|x_i - x_j| - d_ij)^2
    X <- V^+ B(X) X,    B_ij = -w_ij d_ij / |x_i - x_j|,    V_ij = -w_ij,    rows of both sum to 0

De Leeuw (1977). A step never increases the stress, and keeps the mean of the points at 0.

Between two groups, with weights a_i b_j across and 0 within, no pseudo-inverse is needed. With
r_ij = d_ij / |t_i - u_j|, A = sum a_i and B = sum b_j, a step is

    t_i <- 1 / B sum_j b_j r_ij (t_i - u_j)
    u_j <- mean of the new t, weighted by a, + 1 / A sum_i a_i r_ij (u_j - t_i)

and then all points move so that their mean is 0: three matmuls of K x K x D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.chunks import row_chunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

FINER = 32  # so many times smaller chunks than elsewhere: their distances stay in the cache
SMALL = 256  # points up to which all eigenvectors are computed
POWERS = 4  # multiplications that sharpen a random subspace


@dataclass(frozen=True)
class Scaled:
    """The result.

    Attributes:
        points: (n, D).
        stress: of the start, and after every step.
    """

    points: Tensor
    stress: list[float]


def smacof(
    distances: Tensor,
    start: Tensor,
    weights: Tensor | None = None,
    *,
    iterations: int = 300,
    tolerance: float = 1e-6,
) -> Scaled:
    """Return n points for the distances of all pairs.

    Args:
        distances: (n, n) symmetric, at least 0.
        start: (n, D) where the points begin.
        weights: (n, n) symmetric, at least 0; None for 1.
        iterations: steps, at most.
        tolerance: stop where a step lowers the stress by less than this fraction of it.
    """
    count = len(distances)
    if distances.shape != (count, count) or len(start) != count:
        raise HierlearnError(
            f"distances {tuple(distances.shape)} must be (n, n), with a start of n points, not "
            f"{tuple(start.shape)}"
        )
    inverse = None
    if weights is not None:
        inverse = torch.linalg.pinv(torch.diag(weights.sum(dim=1)) - weights, hermitian=True)
    own = torch.ones_like(distances) if weights is None else weights

    def step(points: Tensor) -> tuple[float, Tensor]:
        lengths = pairwise(points, points).fill_diagonal_(0.0)
        stress = float(((lengths - distances).square_() * own).sum()) / 2
        ratios = ratio(distances, lengths) * own
        pulled = ratios.sum(dim=1, keepdim=True) * points - ratios @ points
        return stress, pulled / count if inverse is None else inverse @ pulled

    return descend(start, step, iterations, tolerance)


def smacof_between(
    distances: Tensor,
    start: Tensor,
    weights: tuple[Tensor, Tensor],
    *,
    iterations: int = 300,
    tolerance: float = 1e-6,
) -> Scaled:
    """Return K + L points for the distances between two groups of them.

    Args:
        distances: (K, L) from each point of the first group to each of the second, at least 0.
        start: (K + L, D) where the points begin, the first group first.
        weights: a (K,) and b (L,), at least 0; the weight of a pair is their product.
        iterations: steps, at most.
        tolerance: stop where a step lowers the stress by less than this fraction of it.
    """
    count, others = distances.shape
    if len(start) != count + others:
        raise HierlearnError(
            f"distances {tuple(distances.shape)} need a start of {count + others} points, not "
            f"{tuple(start.shape)}"
        )
    a, b = weights[0] / weights[0].sum(), weights[1] / weights[1].sum()
    whole = float(weights[0].sum() * weights[1].sum())

    def step(points: Tensor) -> tuple[float, Tensor]:
        t, u = points[:count], points[count:]
        moved, pulled, sums = torch.empty_like(t), torch.zeros_like(u), torch.zeros_like(b)
        stress = 0.0
        for rows in row_chunks(count, FINER * others):
            lengths = pairwise(t[rows], u)
            stress += float(a[rows] @ ((lengths - distances[rows]).square_() @ b))
            ratios = ratio(distances[rows], lengths)
            moved[rows] = (ratios @ b)[:, None] * t[rows] - ratios @ (b[:, None] * u)
            ratios *= a[rows, None]
            sums += ratios.sum(dim=0)
            pulled.addmm_(ratios.T, t[rows])
        both = torch.cat([moved, sums[:, None] * u - pulled + a @ moved])
        return stress * whole, both - both.mean(dim=0)

    return descend(start, step, iterations, tolerance)


def descend(
    start: Tensor,
    step: Callable[[Tensor], tuple[float, Tensor]],
    iterations: int,
    tolerance: float,
) -> Scaled:
    """Move points step by step, and stop once that hardly lowers the stress.

    Args:
        start: where they begin.
        step: from points to their stress, and to where they move.
        iterations: steps, at most.
        tolerance: stop where a step lowers the stress by less than this fraction of it.
    """
    points = start
    stress, moved = step(points)
    found = [stress]
    for _ in range(iterations):
        points = moved
        stress, moved = step(points)
        found.append(stress)
        if found[-2] - stress <= tolerance * found[-2]:
            break
    return Scaled(points, found)


def pairwise(a: Tensor, b: Tensor) -> Tensor:
    """Return (K, L) Euclidean distances, by a matmul."""
    squares = torch.addmm(b.square().sum(dim=1)[None], a, b.T, alpha=-2)
    return squares.add_(a.square().sum(dim=1)[:, None]).clamp_min_(0.0).sqrt_()


def ratio(distances: Tensor, lengths: Tensor) -> Tensor:
    """Return distances / lengths, 0 where points coincide; it takes the place of lengths."""
    coincide = lengths == 0
    return torch.div(distances, lengths, out=lengths).masked_fill_(coincide, 0.0)


def classical_start(squared: Tensor, size: int, seed: int, noise: float = 1e-3) -> Tensor:
    """Return (n, D) points by classical scaling, with a little noise.

    The noise breaks ties between groups that begin at the same points, and fills the dimensions
    that have no positive eigenvalue.

    Args:
        squared: (n, n) squared distances; made symmetric.
        size: D.
        seed: of the noise, and of the iteration that finds the eigenvectors.
        noise: relative to the root of the mean squared distance.
    """
    count = len(squared)
    both = (squared + squared.T) / 2
    mean = both.mean(dim=0)
    inner = (both - mean[:, None] - mean + mean.mean()) / -2
    draw = torch.Generator().manual_seed(seed)
    values, vectors = largest_eigenvalues(inner, min(size, count), draw)
    points = torch.randn(count, size, generator=draw, dtype=torch.float64).to(inner)
    points *= noise * float(both.mean().clamp_min(0.0)) ** 0.5
    points[:, : len(values)] += vectors * values.clamp_min(0.0).sqrt()
    return points


def largest_eigenvalues(
    matrix: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the largest eigenvalues, descending, and their (n, count) vectors.

    All of a small matrix are computed; of a large one, those of a random subspace that was
    multiplied by it a few times.
    """
    if len(matrix) <= SMALL:
        values, vectors = torch.linalg.eigh(matrix)
    else:
        wide = torch.randn(len(matrix), 2 * count, generator=generator, dtype=torch.float64)
        basis = torch.linalg.qr(matrix @ wide.to(matrix))[0]
        for _ in range(POWERS):
            basis = torch.linalg.qr(matrix @ basis)[0]
        values, vectors = torch.linalg.eigh(basis.T @ matrix @ basis)
        vectors = basis @ vectors
    kept = values.argsort(descending=True)[:count]
    return values[kept], vectors[:, kept]
