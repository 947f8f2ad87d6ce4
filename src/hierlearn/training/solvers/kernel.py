"""Kernel solver: least squares in the span of Gaussian bumps, in closed form.

    minimize   sum over rows i of w_i |y_i - b - f(x_i)|^2 + noise |f|^2

y_i is 1 for the terminal class of row i, 0 elsewhere, b their mean, and |f| the norm that belongs
to the kernel K. With A = K + noise / w on the diagonal the answer is a = A^-1 (y - b), and what row
i would be given without it is y_i - a_i / (A^-1)_ii: so the width of the bumps and the noise are
those whose squared error is least when every row of a sample is left out (Allen, 1974; Cawley,
2006). Of many rows the bumps stand at some of them only (Williams and Seeger, 2001).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import torch

from hierlearn.errors import HierlearnError
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.kernel import bumps, similarities, squared_distances
from hierlearn.training.seeding import derive

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.networks.kernel import KernelHead
    from hierlearn.training.rows import Rows

WIDTHS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)  # of the bumps; rows differ by about sqrt(2 D)
NOISES = (0.01, 0.1, 0.5)
SAMPLE = 1000  # rows that are left out one at a time
WHOLE = 4000  # rows of which each has a bump; of more,
BUMPS = 2000  # so many have
CHUNK = 8192  # rows whose similarities are held at once
JITTER = 1e-5  # on the diagonal, relative


@torch.no_grad()
def fit_kernel(head: KernelHead, rows: Rows, seed: int) -> None:
    """Fit a kernel machine to rows with one label each.

    Args:
        head: what is fitted.
        rows: the training rows; those whose label is not terminal say nothing here.
        seed: of the rows that are sampled.
    """
    if rows.streamed or isinstance(rows.inputs, SparseRows):
        raise HierlearnError(
            "a kernel machine compares dense rows in memory, not sparse rows or streams; use "
            "another recipe, such as linear"
        )
    offsets, classes = rows.labels.terminal
    if (np.diff(offsets) != 1).any():
        raise HierlearnError(
            "a kernel machine needs one label per row, and some rows have several, or none; use "
            "another recipe, such as quick"
        )
    terminals = head.label_space.terminals
    place = np.clip(np.searchsorted(terminals, classes), 0, len(terminals) - 1)
    counts = np.ones(len(rows)) if rows.weights is None else rows.weights.double().cpu().numpy()
    kept = np.flatnonzero((terminals[place] == classes) & (counts > 0))
    if not len(kept):
        raise HierlearnError("a kernel machine cannot be fitted: no training row has a label")
    draw = np.random.default_rng(derive(seed, "kernel"))
    x = rows.inputs.float().cpu()[torch.from_numpy(kept)]
    noise_of = torch.from_numpy(1 / counts[kept]).float()
    y = torch.zeros(len(kept), len(terminals))
    y[torch.arange(len(kept)), torch.from_numpy(place[kept])] = 1
    bias = (y / noise_of[:, None]).sum(dim=0) / (1 / noise_of).sum()
    y -= bias

    some = torch.from_numpy(draw.permutation(len(kept))[:SAMPLE])
    width, noise = best_width(x[some], y[some], noise_of[some])
    if len(kept) <= WHOLE:
        gram = similarities(x, x, width)
        gram.diagonal().add_(noise * noise_of)
        head.set(x, torch.cholesky_solve(y, torch.linalg.cholesky(gram)), bias, width)
        return
    at = torch.from_numpy(np.sort(draw.permutation(len(kept))[:BUMPS]))
    between = similarities(x[at], x[at], width)
    gram, right = (noise * between).double(), torch.zeros(len(at), y.shape[1], dtype=torch.double)
    for begin in range(0, len(x), CHUNK):
        part = slice(begin, begin + CHUNK)
        near = similarities(x[part], x[at], width)
        weighted = near / noise_of[part, None]
        gram += (weighted.T @ near).double()
        right += (weighted.T @ y[part]).double()
    gram.diagonal().add_(JITTER * float(gram.diagonal().mean()))
    head.set(x[at], torch.cholesky_solve(right, torch.linalg.cholesky(gram)), bias, width)


def best_width(x: Tensor, y: Tensor, noise_of: Tensor) -> tuple[float, float]:
    """Return the width and the noise under which rows that are left out are best predicted.

    Args:
        x: (n, D) rows.
        y: (n, T) what they should be given, less the mean.
        noise_of: (n,) how noisy each is beside the others.
    """
    best = (float("inf"), WIDTHS[0], NOISES[0])
    squared = squared_distances(x, x)  # once: rows may be wide
    for width, noise in itertools.product(WIDTHS, NOISES):
        gram = bumps(squared, width, x.shape[1])
        gram.diagonal().add_(noise * noise_of)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        missed = (inverse @ y) / inverse.diagonal()[:, None]
        value = float(((missed * missed).sum(dim=1) / noise_of).sum())
        best = min(best, (value, width, noise))
    return best[1:]
