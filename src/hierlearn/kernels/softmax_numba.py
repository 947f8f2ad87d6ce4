"""CPU kernels of the softmax link.

Each kernel computes the rows from ``begin`` to ``end``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hierlearn.kernels.math_numba import F, copy, kernel, log
from hierlearn.kernels.tree_numba import (
    complements,
    fold,
    logarithms,
    new_row,
    spread,
    sum_of,
    weigh_complements,
    weigh_heavy,
)


@kernel
def link_forward(begin: int, end: int, x: Any, tree: Any, log_p: Any, log_not_p: Any) -> None:
    """Write log p and log(1 - p) of every class."""
    row = new_row(x.shape[1], len(tree.owner))
    for i in range(begin, end):
        total = fold(x[i], tree, row)
        logarithms(tree, row, total)
        complements(tree, row, total)
        log_total = log(total)
        for c in range(len(row.x)):
            log_p[i, c] = row.x[c] - log_total
        for s in range(1, len(tree.owner)):
            log_p[i, tree.owner[s]] = row.log_p[s]
        copy(row.log_not_p, log_not_p[i])


@kernel
def link_backward(
    begin: int, end: int, x: Any, tree: Any, given_p: Any, given_not_p: Any, dx: Any
) -> None:
    """Write the gradient of the logits; a given gradient of no columns is 0."""
    classes = x.shape[1]
    row = new_row(classes, len(tree.owner))
    not_p = np.empty(classes, F)
    heavy_not_p = np.empty(classes, F)
    for i in range(begin, end):
        total = fold(x[i], tree, row)
        logarithms(tree, row, total)
        count = complements(tree, row, total)
        dx[i, :] = F(0.0)
        share = F(0.0)
        if given_p.shape[1]:
            copy(given_p[i], row.inside)
            share -= sum_of(row.inside, 0, classes)
        else:
            row.inside[:] = F(0.0)
        if given_not_p.shape[1]:
            copy(given_not_p[i], not_p)
            for place in range(count):
                heavy_not_p[place] = not_p[row.heavy[place]]
                not_p[row.heavy[place]] = F(0.0)
            share += weigh_complements(not_p, row, total)
            weigh_heavy(heavy_not_p, count, tree, row, total, dx[i])
        spread(tree, row, share, total, dx[i])
