"""CPU kernels of HCL with bce on sigmoids: class sums and errors, then the gradient.

With z = -x for positives and x for negatives the loss is softplus(z), which grows with z: maxima of
losses are maxima of z. The constraint compares a class with its ancestors, with all shallower
levels, or with nobody. See hcl_numba.py.
"""

from __future__ import annotations

from typing import Any

from hierlearn.kernels.hcl_numba import NOBODY, bind, constrain, new_bounds, route, sums_of_groups
from hierlearn.kernels.math_numba import (
    SUMS,
    F,
    I,
    choose,
    from_ordered,
    kernel,
    ordered,
    part,
    sigmoid,
    softplus,
)
from hierlearn.kernels.row_losses_numba import row_of
from hierlearn.kernels.tree_numba import vanishing


@part()
def signed(x: Any, y: Any, known: Any, z: Any) -> None:
    """Write -x for positives and x for negatives: the loss is softplus(z)."""
    for c in range(len(x)):
        z[c] = -x[c] if y[c] else x[c]
    for c in range(len(known)):
        z[c] = z[c] if known[c] else NOBODY


@part()
def bind_levels(first: Any, row: Any) -> None:
    """Set ``bound`` and ``place`` of every level: the largest of all shallower ones."""
    row.bound[0], row.place[0] = NOBODY, -1
    for level in range(1, len(first) - 1):
        begin, end = first[level - 1], first[level]
        best = highest(row.losses, begin, end)
        row.bound[level], row.place[level] = row.bound[level - 1], row.place[level - 1]
        if best > row.bound[level - 1]:
            row.bound[level] = best
            for c in range(begin, end):
                if row.losses[c] == best:
                    row.place[level] = c
                    break


@part()
def highest(values: Any, begin: int, end: int) -> Any:
    """Return the largest of a range."""
    best = ordered(NOBODY)
    for c in range(begin, end):
        best = max(best, ordered(values[c]))
    return from_ordered(best)


@kernel
def sigmoid_sums(
    begin: int,
    end: int,
    x: Any,
    y: Any,
    mask: Any,
    tree: Any,
    group: Any,
    first: Any,
    along_edges: bool,
    sums: Any,
) -> int:
    """Add the constrained losses of every class to ``sums``.

    Args:
        begin: the first row.
        end: the row after the last.
        x: (N, C) logits.
        y: (N, C) targets.
        mask: (N, C) which targets are known.
        tree: the tree.
        group: (C,) the group of each class.
        first: (G + 1,) the first class of each group, then C.
        along_edges: whether the groups are those of the tree; else each binds all that follow.
        sums: (C,) float64.

    Returns:
        The number of constrained errors, or -1 where logits are not finite.
    """
    row = new_bounds(x.shape[1], len(first))
    errors = 0
    for i in range(begin, end):
        if vanishing(x[i]) != F(0.0):  # or NaN
            return -1
        signed(x[i], y[i], row_of(mask, i), row.losses)
        if along_edges:
            bind(tree, row)
            constrain(group, row)
        else:
            bind_levels(first, row)
            constrain_levels(first, row)
        errors += add_softplus(row.losses, sums)
    return errors


@part()
def constrain_levels(first: Any, row: Any) -> None:
    """Raise every known loss to the bound of its level."""
    for level in range(1, len(first) - 1):
        bound = row.bound[level]
        for c in range(first[level], first[level + 1]):
            value = row.losses[c]
            row.losses[c] = max(value, bound) if value > NOBODY else value


@part()
def add_softplus(z: Any, sums: Any) -> int:
    """Add softplus(z), overwriting z, and return how many z are not negative."""
    errors = I(0)
    for c in range(len(sums)):
        errors += I(1) if z[c] >= F(0.0) else I(0)
    for c in range(len(sums)):
        z[c] = softplus(z[c])
    for c in range(len(sums)):
        sums[c] += z[c]
    return int(errors)


@kernel
def sigmoid_gradient(
    begin: int,
    end: int,
    x: Any,
    y: Any,
    mask: Any,
    tree: Any,
    group: Any,
    first: Any,
    along_edges: bool,
    weights: Any,
    dx: Any,
) -> None:
    """Write the gradient of the class sums, each times its weight."""
    row = new_bounds(x.shape[1], len(first))
    group_weights = sums_of_groups(group, len(first) - 1, weights)
    for i in range(begin, end):
        signed(x[i], y[i], row_of(mask, i), row.losses)
        if along_edges:
            bind(tree, row)
            route(group, row_of(mask, i), row, weights, group_weights)
        else:
            bind_levels(first, row)
            route_levels(first, row, weights)
        signed_slopes(row.losses, y[i], row.weights, dx[i])


@part()
def signed_slopes(z: Any, y: Any, weights: Any, dx: Any) -> None:
    """Write weight * sigmoid(z), negative for positives."""
    for c in range(len(dx)):
        value = weights[c] * sigmoid(z[c])
        dx[c] = -value if y[c] else value


@part()
def route_levels(first: Any, row: Any, weights: Any) -> None:
    """Give the weight of each class to whoever attains its maximum: itself where it ties."""
    for level in range(len(first) - 1):
        begin, end = first[level], first[level + 1]
        given = keep_weights(row.losses, row.bound[level], weights, row.weights, begin, end)
        if row.place[level] >= 0:
            row.weights[row.place[level]] += given


@part(SUMS)
def keep_weights(losses: Any, bound: Any, weights: Any, kept: Any, begin: int, end: int) -> Any:
    """Write the weights of the known classes that nothing binds; return those of the others."""
    given = F(0.0)
    for c in range(begin, end):
        weight = choose(losses[c] > NOBODY, weights[c], F(0.0))
        own = choose(losses[c] >= bound, weight, F(0.0))
        kept[c] = own
        given += weight - own
    return given
