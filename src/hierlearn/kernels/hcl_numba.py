"""CPU kernels of HCL with bce on a softmax: class sums and errors, then the gradient.

Each kernel computes the rows from ``begin`` to ``end``. Targets ``y`` are uint8, 0 or 1; ``mask``
has one row and no columns where everything is known. The constraint compares a class with its
ancestors, or with nobody. Where ancestors bind and everything is known, bound_numba.py is faster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hierlearn.kernels.math_numba import F, choose, kernel, log, part
from hierlearn.kernels.row_losses_numba import BLOCK, find_positives, is_zero, row_of
from hierlearn.kernels.tree_numba import (
    complements,
    fold,
    log_of,
    logarithms,
    new_row,
    spread,
    vanishing,
    weigh_complements,
    weigh_heavy,
)

NOBODY = F(-np.inf)  # binds no class


class Bounds(NamedTuple):
    """Scratch memory for the constraint in one row."""

    losses: Any  # (C,) the loss of each class, or what it grows with; -inf where unknown
    weights: Any  # (C,) the class weights that belong to whoever attains the maximum
    bound: Any  # (S,) the largest of each slot's class and its ancestors
    place: Any  # (S,) int32, the first class that attains it, -1 for none
    given: Any  # (S,) float64, the weight that a group gives to it


@part()
def new_bounds(classes: int, slots: int) -> Any:
    """Return scratch memory."""
    return Bounds(
        np.empty(classes, F),
        np.empty(classes, F),
        np.empty(slots, F),
        np.empty(slots, np.int32),
        np.empty(slots),
    )


@part()
def bind(tree: Any, row: Any) -> None:
    """Set ``bound`` and ``place`` of every slot."""
    row.bound[0], row.place[0] = NOBODY, -1
    for s in range(1, len(tree.owner)):
        c = tree.owner[s]
        above = tree.parent[c]
        higher = row.losses[c] > row.bound[above]
        row.bound[s] = choose(higher, row.losses[c], row.bound[above])
        row.place[s] = choose(higher, c, row.place[above])


@part()
def route(group: Any, known: Any, row: Any, weights: Any, group_weights: Any) -> None:
    """Give the weight of each class to whoever attains its maximum: itself where it ties.

    Args:
        group: (C,) the group of each class.
        known: (C,) which classes are known, or empty.
        row: with ``losses``, ``bound`` and ``place``; receives ``weights``.
        weights: (C,) the class weights.
        group_weights: (G,) their sums over groups; one group binds nobody.
    """
    groups = len(group_weights)
    for c in range(len(weights)):
        row.weights[c] = choose(row.losses[c] >= row.bound[group[c]], weights[c], F(0.0))
    for c in range(len(known)):
        row.weights[c] = row.weights[c] if known[c] else F(0.0)
    if groups == 1:
        return
    for g in range(groups):
        row.given[g] = group_weights[g]
    for c in range(len(known)):
        if not known[c]:
            row.given[group[c]] -= weights[c]
    whole = len(weights) - len(weights) % BLOCK
    for begin in range(0, len(weights), BLOCK):
        if begin < whole and is_zero(row.weights, begin):  # few classes keep their weight
            continue
        for c in range(begin, min(begin + BLOCK, len(weights))):
            if row.weights[c] != F(0.0):
                row.given[group[c]] -= row.weights[c]
    for g in range(1, groups):
        if row.place[g] >= 0:
            row.weights[row.place[g]] += F(row.given[g])


@part()
def sums_of_groups(group: Any, groups: int, weights: Any) -> Any:
    """Return (G,) the summed weights of each group."""
    found = np.zeros(groups)
    for c in range(len(weights)):
        found[group[c]] += weights[c]
    return found


@part()
def entry_losses(
    y: Any, known: Any, tree: Any, row: Any, total: Any, positives: Any, losses: Any
) -> int:
    """Write the loss of every class, minus log p or minus log(1 - p), and its positives."""
    log_total = log(total)
    for c in range(len(losses)):
        losses[c] = -row.log_not_p[c]
    found = find_positives(y, known, positives)
    for place in range(found):
        losses[positives[place]] = -log_of(tree, row, positives[place], log_total)
    for c in range(len(known)):
        losses[c] = losses[c] if known[c] else NOBODY
    return found


@kernel
def softmax_sums(
    begin: int, end: int, x: Any, y: Any, mask: Any, tree: Any, binds: bool, sums: Any
) -> int:
    """Add the constrained losses of every class to ``sums``.

    Returns:
        The number of constrained errors, or -1 where logits are not finite.
    """
    classes, slots = x.shape[1], len(tree.owner)
    row, bounds = new_row(classes, slots), new_bounds(classes, slots)
    positives = np.empty(classes, np.int32)
    is_error, is_wrong = np.empty(classes, np.uint8), np.zeros(slots, np.uint8)
    errors = 0
    for i in range(begin, end):
        if vanishing(x[i]) != F(0.0):  # or NaN
            return -1
        known = row_of(mask, i)
        total = fold(x[i], tree, row)
        logarithms(tree, row, total)
        complements(tree, row, total)
        entry_losses(y[i], known, tree, row, total, positives, bounds.losses)
        errors += find_errors(y[i], known, row.p, total, is_error)
        if binds:
            bind(tree, bounds)
            constrain(tree.parent, bounds)
            errors += errors_below(known, tree, is_error, is_wrong)
        add_losses(bounds.losses, sums)
    return errors


@part()
def find_errors(y: Any, known: Any, p: Any, total: Any, is_error: Any) -> int:
    """Write where p / total is not strictly on the target's side of 1/2; return how often."""
    count = 0
    for c in range(len(y)):
        twice = p[c] + p[c]
        wrong = twice <= total if y[c] else twice >= total
        is_error[c] = wrong
        count += wrong
    for c in range(len(known)):
        if is_error[c] and not known[c]:
            is_error[c] = 0
            count -= 1
    return count


@part()
def errors_below(known: Any, tree: Any, is_error: Any, is_wrong: Any) -> int:
    """Return how many known classes are right themselves, but below an error."""
    count = 0
    for s in range(1, len(tree.owner)):
        c = tree.owner[s]
        is_wrong[s] = is_error[c] or is_wrong[tree.parent[c]]
        if is_wrong[s]:
            for k in range(tree.first[s], tree.first[s + 1]):
                count += not is_error[k] and (len(known) == 0 or known[k] != 0)
    return count


@part()
def constrain(group: Any, row: Any) -> None:
    """Raise every known loss to the bound of its group."""
    for c in range(len(group)):
        value = row.losses[c]
        raised = max(value, row.bound[group[c]])
        row.losses[c] = raised if value > NOBODY else value


@part()
def add_losses(losses: Any, sums: Any) -> None:
    """Add the losses of known classes."""
    for c in range(len(sums)):
        sums[c] += losses[c] if losses[c] > NOBODY else F(0.0)


@kernel
def softmax_gradient(
    begin: int, end: int, x: Any, y: Any, mask: Any, tree: Any, binds: bool, weights: Any, dx: Any
) -> None:
    """Write the gradient of the class sums, each times its weight."""
    classes, slots = x.shape[1], len(tree.owner)
    row, bounds = new_row(classes, slots), new_bounds(classes, slots)
    positives = np.empty(classes, np.int32)
    heavy = np.empty(classes, F)
    group_weights = sums_of_groups(tree.parent, slots, weights)
    if not binds:
        group_weights = group_weights[:1]
    for i in range(begin, end):
        known = row_of(mask, i)
        total = fold(x[i], tree, row)
        logarithms(tree, row, total)
        count = complements(tree, row, total)
        found = entry_losses(y[i], known, tree, row, total, positives, bounds.losses)
        if binds:
            bind(tree, bounds)
        else:
            bounds.bound[:] = NOBODY
        route(tree.parent, known, bounds, weights, group_weights)
        given = bounds.losses  # of log(1 - p)
        share = -split(bounds.weights, positives, found, row.inside, given)
        for place in range(count):
            heavy[place] = given[row.heavy[place]]
            given[row.heavy[place]] = F(0.0)
        share += weigh_complements(given, row, total)
        dx[i, :] = F(0.0)
        weigh_heavy(heavy, count, tree, row, total, dx[i])
        spread(tree, row, share, total, dx[i])


@part()
def split(weights: Any, positives: Any, found: int, positive: Any, negative: Any) -> Any:
    """Write the gradients of log p and of log(1 - p); return the sum of the former."""
    total = F(0.0)
    for c in range(len(weights)):
        positive[c] = F(0.0)
        negative[c] = -weights[c]
    for place in range(found):
        c = positives[place]
        positive[c] = -weights[c]
        negative[c] = F(0.0)
        total -= weights[c]
    return total
