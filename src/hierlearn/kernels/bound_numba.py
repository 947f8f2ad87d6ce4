"""CPU kernels of HCL on a softmax where ancestors bind and everything is known.

Down a tree the probability of a class falls, and so does the loss of a negative class. So nearly
every class has the loss of its parent's bound, and nothing must be computed for it: class sums are
kept per group of siblings. What differs are *keepers*, the classes whose own loss is at least the
bound of their group. A class that is neither positive nor heavy keeps its loss where

    -log(1 - p) >= bound,    p >= 1 - exp(-bound)

which compares a sum of the sweep with one limit per group. Positive and heavy classes, a path or
two per row, are *special*: they are compared by their losses. The top classes have no bound; those
that are not special are computed together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hierlearn.kernels.math_numba import SUMS, F, choose, exp, kernel, log, log1p, part
from hierlearn.kernels.row_losses_numba import find_positives
from hierlearn.kernels.tree_numba import (
    find_heavy,
    fold,
    log_of,
    logarithms,
    new_row,
    spread,
    vanishing,
    weigh_heavy,
)

NOBODY = F(-np.inf)  # binds no class
NEVER = F(3e38)  # the limit of a bound that only such classes reach
LARGE = F(0.6931)  # -log(1/2): a bound that no other class reaches


class Keepers(NamedTuple):
    """Scratch memory for the constraint in one row."""

    bound: Any  # (S,) the largest loss of each slot's class and its ancestors
    place: Any  # (S,) int32, the first class that attains it
    limit: Any  # (S,) the least p, times the sum of e, of a keeper
    special: Any  # (C,) int32, the positive and heavy classes
    kept: Any  # (C,) int32, the keepers
    losses: Any  # (C,) their losses, in this order
    state: Any  # (C,) uint8: 1 positive, 2 heavy, 4 an error; 0 between rows
    positives: Any  # (C,) int32


@part()
def new_keepers(classes: int, slots: int) -> Any:
    """Return scratch memory."""
    return Keepers(
        np.empty(slots, F),
        np.empty(slots, np.int32),
        np.empty(slots, F),
        np.empty(classes, np.int32),
        np.empty(classes, np.int32),
        np.empty(classes, F),
        np.zeros(classes, np.uint8),
        np.empty(classes, np.int32),
    )


@part()
def sweep(x: Any, y: Any, tree: Any, row: Any, keep: Any) -> Any:
    """Fold a row and find its special classes: (total, positives, heavy ones, special ones)."""
    total = fold(x, tree, row)
    logarithms(tree, row, total)
    heavy = find_heavy(tree, row, total)
    found = find_positives(y, y[:0], keep.positives)
    count = 0
    for place in range(found):
        keep.state[keep.positives[place]] = 1
        keep.special[count] = keep.positives[place]
        count += 1
    for place in range(heavy):
        c = row.heavy[place]
        if keep.state[c] == 0:
            keep.special[count] = c
            count += 1
        keep.state[c] |= 2
    return total, found, heavy, count


@part()
def loss_of(c: int, tree: Any, row: Any, keep: Any, total: Any) -> Any:
    """Return the loss of a positive or heavy class."""
    if keep.state[c] & 1:
        return -log_of(tree, row, c, log(total))
    return -row.log_not_p[c]


@part()
def bind(tree: Any, row: Any, keep: Any, total: Any, count: int) -> None:
    """Set bound, place and limit of every slot."""
    keep.bound[0], keep.place[0], keep.limit[0] = NOBODY, -1, F(0.0)
    scale = F(1.0) / total
    for s in range(1, len(tree.owner)):
        keep.limit[s] = row.p[tree.owner[s]]
    for s in range(1, len(tree.owner)):
        keep.bound[s] = usual_loss(keep.limit[s], scale)
    for place in range(count):
        c = keep.special[place]
        s = tree.slot[c]
        if s >= 0:
            own = loss_of(c, tree, row, keep, total)
            keep.bound[s] = own
            keep.limit[s] = NEVER if own >= LARGE else (F(1.0) - exp(-own)) * total
    deeper = 1
    while deeper < len(tree.owner) and tree.owner[deeper] < tree.first[1]:
        keep.place[deeper] = tree.owner[deeper]  # a top class: nothing binds it
        deeper += 1
    for s in range(deeper, len(tree.owner)):
        c = tree.owner[s]
        above = tree.parent[c]
        higher = keep.bound[s] > keep.bound[above]
        keep.bound[s] = choose(higher, keep.bound[s], keep.bound[above])
        keep.place[s] = choose(higher, c, keep.place[above])
        keep.limit[s] = choose(higher, keep.limit[s], keep.limit[above])


@part()
def find_keepers(tree: Any, row: Any, keep: Any, total: Any, count: int) -> int:
    """Write down the keepers with their losses and return their number.

    Of the top classes, only the special ones are among them.
    """
    saved = keep.losses  # of special classes p is hidden while limits are compared
    for place in range(count):
        saved[place] = row.p[keep.special[place]]
        row.p[keep.special[place]] = F(-1.0)
    number = 0
    for s in range(1, len(tree.owner)):
        limit = keep.limit[s]
        if keep.state[tree.owner[s]] == 0 and row.p[tree.owner[s]] < limit:
            continue  # nothing below a class exceeds it
        for c in range(tree.first[s], tree.first[s + 1]):
            if row.p[c] >= limit:
                keep.kept[number] = c
                number += 1
    for place in range(count):
        row.p[keep.special[place]] = saved[place]
    scale = F(1.0) / total
    for place in range(number):
        keep.losses[place] = row.p[keep.kept[place]]
    for place in range(number):
        keep.losses[place] = usual_loss(keep.losses[place], scale)
    for place in range(count):
        c = keep.special[place]
        own = loss_of(c, tree, row, keep, total)
        if own >= keep.bound[tree.parent[c]]:
            keep.kept[number], keep.losses[number] = c, own
            number += 1
    return number


@part()
def count_errors(tree: Any, row: Any, keep: Any, total: Any, heavy: int, count: int) -> int:
    """Return how many classes are an error or below one, and reset ``state``."""
    for place in range(count):
        c = keep.special[place]
        twice = row.p[c] + row.p[c]
        if (keep.state[c] & 1 and twice <= total) or (not keep.state[c] & 1 and twice >= total):
            keep.state[c] |= 4
    errors = 0
    last = tree.slot[row.heavy[heavy - 1]] if heavy else 0
    if last >= 0:  # where the heavy path ends two classes may have exactly one half each
        for c in range(tree.first[last], tree.first[last + 1]):
            half = row.p[c] + row.p[c] == total
            if half and not keep.state[c] & 1 and not below_error(c, tree, keep):
                errors += tree.size[c]
    for place in range(count):
        c = keep.special[place]
        if keep.state[c] & 4 and not below_error(c, tree, keep):
            errors += tree.size[c]
    for place in range(count):
        keep.state[keep.special[place]] = 0
    return errors


@part()
def below_error(c: int, tree: Any, keep: Any) -> bool:
    """Whether an ancestor of a class is an error."""
    above = tree.owner[tree.parent[c]]
    while above >= 0:
        if keep.state[above] & 4:
            return True
        above = tree.owner[tree.parent[above]]
    return False


@part()
def usual_loss(p: Any, scale: Any) -> Any:
    """Return the loss of a class that is not special."""
    return -log1p(-min(p * scale, F(0.5)))


@part()
def add_top(p: Any, top: int, scale: Any, sums: Any) -> None:
    """Add the losses of the top classes, as if none were special."""
    for c in range(top):
        sums[c] += usual_loss(p[c], scale)


@kernel
def bound_sums(begin: int, end: int, x: Any, y: Any, tree: Any, sums: Any) -> int:
    """Add the constrained losses of every class to ``sums``.

    Returns:
        The number of constrained errors, or -1 where logits are not finite.
    """
    classes, slots = x.shape[1], len(tree.owner)
    row, keep = new_row(classes, slots), new_keepers(classes, slots)
    slot_sums = np.zeros(slots)
    errors = 0
    for i in range(begin, end):
        if vanishing(x[i]) != F(0.0):  # or NaN
            return -1
        total, _, heavy, count = sweep(x[i], y[i], tree, row, keep)
        bind(tree, row, keep, total, count)
        for s in range(1, slots):
            slot_sums[s] += keep.bound[s]
        add_top(row.p, tree.first[1], F(1.0) / total, sums)
        for place in range(count):  # which are among the keepers
            c = keep.special[place]
            if c < tree.first[1]:
                sums[c] -= usual_loss(row.p[c], F(1.0) / total)
        for place in range(find_keepers(tree, row, keep, total, count)):
            c = keep.kept[place]
            above = keep.bound[tree.parent[c]]
            sums[c] += keep.losses[place] - (above if above > NOBODY else F(0.0))
        errors += count_errors(tree, row, keep, total, heavy, count)
    for c in range(classes):
        sums[c] += slot_sums[tree.parent[c]]
    return errors


@kernel
def bound_gradient(begin: int, end: int, x: Any, y: Any, tree: Any, weights: Any, dx: Any) -> None:
    """Write the gradient of the class sums, each times its weight."""
    classes, slots = x.shape[1], len(tree.owner)
    row, keep = new_row(classes, slots), new_keepers(classes, slots)
    given_heavy = np.empty(classes, F)
    group_weights, given = np.zeros(slots), np.empty(slots)
    owed = np.zeros(classes, F)  # what belongs to whoever attains a maximum
    top = tree.first[1]
    for c in range(classes):
        group_weights[tree.parent[c]] += weights[c]
    for i in range(begin, end):
        total, _, heavy, count = sweep(x[i], y[i], tree, row, keep)
        bind(tree, row, keep, total, count)
        number = find_keepers(tree, row, keep, total, count)
        for s in range(1, slots):
            given[s] = group_weights[s]
        for c in range(top):
            owed[c] = weights[c]
        for place in range(number):
            c = keep.kept[place]
            if c >= top:
                owed[c] += weights[c]
                given[tree.parent[c]] -= weights[c]
        for s in range(1, slots):
            owed[keep.place[s]] += F(given[s])
        for c in range(classes):
            row.inside[c] = F(0.0)
            dx[i, c] = F(0.0)
        share = F(0.0)
        for place in range(heavy):
            c = row.heavy[place]
            given_heavy[place] = F(0.0) if keep.state[c] & 1 else -owed[c]
        for place in range(count):
            c = keep.special[place]
            if keep.state[c] & 1:  # of -log p
                row.inside[c] -= owed[c]
                share += owed[c]
            owed[c] = F(0.0)
            keep.state[c] = 0
        for place in range(number):  # of -log(1 - p), as of the top classes below
            c = keep.kept[place]
            if c >= top:
                odds = owed[c] * row.p[c] / (total - row.p[c]) if owed[c] else F(0.0)
                row.inside[c] += odds
                share -= odds
                owed[c] = F(0.0)
        share -= add_odds(owed, row, top, total)
        weigh_heavy(given_heavy, heavy, tree, row, total, dx[i])
        spread(tree, row, share, total, dx[i])


@part(SUMS)
def add_odds(owed: Any, row: Any, top: int, total: Any) -> Any:
    """Add the gradient of -log(1 - p) of the top classes to ``inside`` and return its sum."""
    summed = F(0.0)
    for c in range(top):
        odds = owed[c] * row.p[c] / (total - min(row.p[c], F(0.5) * total))
        row.inside[c] += odds
        summed += odds
    return summed
