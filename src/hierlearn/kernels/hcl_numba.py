"""CPU kernels of HCL with bce: class sums and errors, then the gradient.

Each kernel computes the rows from ``begin`` to ``end``. Targets ``y`` are uint8, 0 or 1; ``mask``
has one row and no columns where everything is known.

    softmax_*   on a softmax: the constraint compares a class with its ancestors, or with nobody
    sigmoid_*   on sigmoids: with its ancestors, with all shallower levels, or with nobody
    bound_*     on a softmax, faster, where ancestors bind and everything is known

On sigmoids, with z = -x for positives and x for negatives, the loss is softplus(z), which grows
with z: maxima of losses are maxima of z.

The third kind: down a tree the probability of a class falls, and so does the loss of a negative
class. So nearly every class has the loss of its parent's bound, and nothing must be computed for
it: class sums are kept per group of siblings. What differs are *keepers*, the classes whose own
loss is at least the bound of their group. A class that is neither positive nor heavy keeps its loss
where

    -log(1 - p) >= bound,    p >= 1 - exp(-bound)

which compares a sum of the sweep with one limit per group. Positive and heavy classes, a path or
two per row, are *special*: they are compared by their losses. The top classes have no bound; those
that are not special are computed together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hierlearn.kernels.losses_numba import BLOCK, find_positives, is_zero, row_of
from hierlearn.kernels.tree_numba import (
    SUMS,
    F,
    I,
    choose,
    complements,
    exp,
    find_heavy,
    fold,
    from_ordered,
    kernel,
    log,
    log1p,
    log_of,
    logarithms,
    new_row,
    ordered,
    part,
    sigmoid,
    softplus,
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
def bind_keepers(tree: Any, row: Any, keep: Any, total: Any, count: int) -> None:
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
        bind_keepers(tree, row, keep, total, count)
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
        bind_keepers(tree, row, keep, total, count)
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
