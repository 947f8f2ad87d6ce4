"""Sums over the labels of candidates where few of many classes are positive.

    p = w Y,      q = sum(w) - p

Y has a few positive classes per row, out of tens of thousands, so a sparse product costs a
thousandth of the dense one. It is summed in double precision: q is a difference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LARGE = 1 << 24  # entries of targets from which the sparse sums are worthwhile
DENSITY = 0.02  # of positive entries, at most


class SparseMatmul(torch.autograd.Function):
    """A sparse matrix times a dense one, differentiable in the dense one any number of times."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, dense: Tensor) -> Tensor:
        """Return matrix @ dense."""
        ctx.pair = (matrix, transposed)
        found: Tensor = torch.sparse.mm(matrix, dense)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        """Return the gradient of the dense matrix."""
        matrix, transposed = ctx.pair
        return None, None, SparseMatmul.apply(transposed, matrix, grad)  # type: ignore[no-untyped-call]


def is_sparse(targets: Tensor) -> bool:
    """Whether the sparse sums are worthwhile: large targets on the CPU, few of them positive."""
    if targets.numel() < LARGE or targets.is_cuda or torch.compiler.is_compiling():
        return False
    return int(targets.count_nonzero()) <= DENSITY * targets.numel()


def sparse_mixture(weights: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return sum of w y and sum of w (1 - y).

    Args:
        weights: (n, K) or (M, n, K).
        targets: (K, C) or (M, K, C) bool.
    """
    if targets.dim() == 3:
        parts = [sparse_mixture(w, y) for w, y in zip(weights, targets, strict=True)]
        return torch.stack([p for p, _ in parts]), torch.stack([q for _, q in parts])
    matrix, transposed = sparse_targets(targets, torch.float64)
    double = weights.double()
    p: Tensor = SparseMatmul.apply(matrix, transposed, double.mT.contiguous()).mT  # type: ignore[no-untyped-call]
    q = (double.sum(-1, keepdim=True) - p).clamp_min(0.0)
    return p.to(weights.dtype).contiguous(), q.to(weights.dtype).contiguous()


def sparse_targets(targets: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return (K, C) targets as sparse matrices of ones: (C, K), and (K, C)."""
    count, classes = targets.shape
    places = targets.nonzero().T.contiguous()  # (2, nonzero), by candidate
    by_class = places[:, places[1].argsort(stable=True)].flip(0).contiguous()
    ones = torch.ones(places.shape[1], dtype=dtype)
    matrix = torch.sparse_coo_tensor(
        by_class, ones, (classes, count), is_coalesced=True, check_invariants=False
    )
    transposed = torch.sparse_coo_tensor(
        places, ones, (count, classes), is_coalesced=True, check_invariants=False
    )
    return matrix, transposed
