"""CPU kernels of losses of rows, and of losses of entries summed over each row.

Leaf cross entropy, HXE, soft labels and conditional softmax; then bce, focal and MCLoss. Each
kernel computes the rows from ``begin`` to ``end``: their losses, and their gradients unless ``dx``
has no columns. Targets ``y`` are uint8 or float32; ``mask`` has one row and no columns where
everything is known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hierlearn.kernels.tree_numba import (
    SUMS,
    F,
    I,
    choose,
    copy,
    exp,
    exponentials,
    fold,
    kernel,
    log,
    log1p,
    log_of,
    logarithms,
    new_row,
    part,
    spread,
    sum_of,
    sum_up,
    vanishing,
)

BLOCK = 32  # classes that are looked at together; most targets are 0


class Labels(NamedTuple):
    """Scratch memory for the labels of one row."""

    positives: Any  # (C,) int32, the positive classes, ascending
    chosen: Any  # (C,) int32, those that are more positive than their children together
    share: Any  # (C,) float32, by how much
    below: Any  # (S,) float32, the sums of children; 0 outside of find_labels


@part()
def new_labels(classes: int, slots: int) -> Any:
    """Return scratch memory."""
    return Labels(
        np.empty(classes, np.int32),
        np.empty(classes, np.int32),
        np.empty(classes, F),
        np.zeros(slots, F),
    )


@part()
def find_positives(y: Any, known: Any, positives: Any) -> int:
    """Write down the positive classes of a row and return their number."""
    found = 0
    whole = len(y) - len(y) % BLOCK
    for begin in range(0, len(y), BLOCK):
        if begin < whole and is_zero(y, begin):
            continue
        for c in range(begin, min(begin + BLOCK, len(y))):
            if y[c] != 0 and (len(known) == 0 or known[c]):
                positives[found] = c
                found += 1
    return found


@part()
def is_zero(values: Any, begin: int) -> bool:
    """Whether all numbers of a block are 0."""
    count = I(0)
    for place in range(BLOCK):
        count += I(1) if values[begin + place] != 0 else I(0)
    return count == I(0)


@part()
def find_labels(y: Any, known: Any, tree: Any, labels: Any) -> Any:
    """Write down the most specific positive classes of a row, and their shares.

    Returns:
        Their number, and their summed shares, at least 1.
    """
    found = find_positives(y, known, labels.positives)
    for place in range(found):
        c = labels.positives[place]
        labels.below[tree.parent[c]] += F(y[c])
    count, weight = 0, F(0.0)
    for place in range(found):
        c = labels.positives[place]
        s = tree.slot[c]
        share = F(y[c]) - (labels.below[s] if s >= 0 else F(0.0))
        if share > F(0.0):
            labels.chosen[count] = c
            labels.share[count] = share
            count += 1
            weight += share
    for place in range(found):
        labels.below[tree.parent[labels.positives[place]]] = F(0.0)
    return count, max(weight, F(1.0))


@part()
def row_of(array: Any, i: int) -> Any:
    """Return a row, or the one row without columns."""
    return array[min(i, len(array) - 1)]


@part()
def fits_alone(c: int, known: Any, tree: Any) -> bool:
    """Whether only the own mass of a label fits it, not what lies below."""
    if not tree.terminal[c]:
        return False
    s = tree.slot[c]
    if s >= 0 and len(known):
        for k in range(tree.first[s], tree.first[s + 1]):
            if not known[k]:
                return False
    return True


@kernel
def leaf_ce(
    begin: int, end: int, x: Any, y: Any, mask: Any, dx: Any, losses: Any, tree: Any
) -> None:
    """Minus the log mass that fits the labels."""
    row = new_row(x.shape[1], len(tree.owner))
    labels = new_labels(x.shape[1], len(tree.owner))
    learns = dx.shape[1] > 0
    for i in range(begin, end):
        if vanishing(x[i]) != F(0.0):  # or NaN
            losses[i] = F(np.nan)
            continue
        known, given = row_of(mask, i), row_of(dx, i)
        count, weight = find_labels(y[i], known, tree, labels)
        total = fold(x[i], tree, row)
        log_total = log(total)
        given[:] = F(0.0)
        loss, summed, deep = F(0.0), F(0.0), False
        for place in range(count):
            c = labels.chosen[place]
            w = labels.share[place] / weight
            summed += w
            if fits_alone(c, known, tree):
                loss += w * (log_total - row.x[c])
                if learns:
                    given[c] -= w
                continue
            if not deep:
                logarithms(tree, row, total)
                row.inside[:] = F(0.0)
                deep = True
            loss -= w * log_of(tree, row, c, log_total)
            row.inside[c] -= w
        losses[i] = loss
        if learns and deep:
            spread(tree, row, summed, total, given)
        elif learns:
            add_scaled(row.e, summed / total, given)


@part()
def add_scaled(values: Any, scale: Any, out: Any) -> None:
    """Add scale * values."""
    for c in range(len(out)):
        out[c] += values[c] * scale


@kernel
def hxe(
    begin: int,
    end: int,
    x: Any,
    y: Any,
    mask: Any,
    dx: Any,
    losses: Any,
    tree: Any,
    step_weights: Any,
) -> None:
    """The weighted steps down the paths to the labels."""
    row = new_row(x.shape[1], len(tree.owner))
    labels = new_labels(x.shape[1], len(tree.owner))
    learns = dx.shape[1] > 0
    for i in range(begin, end):
        if vanishing(x[i]) != F(0.0):  # or NaN
            losses[i] = F(np.nan)
            continue
        count, weight = find_labels(y[i], row_of(mask, i), tree, labels)
        total = fold(x[i], tree, row)
        log_total = log(total)
        logarithms(tree, row, total)
        row.inside[:] = F(0.0)
        loss, share = F(0.0), F(0.0)
        for place in range(count):
            c = labels.chosen[place]
            w = labels.share[place] / weight
            while c >= 0:
                above = tree.owner[tree.parent[c]]
                step = w * step_weights[c]
                loss -= step * log_of(tree, row, c, log_total)
                row.inside[c] -= step
                share += step
                if above >= 0:
                    loss += step * row.log_p[tree.parent[c]]
                    row.inside[above] += step
                    share -= step
                c = above
        losses[i] = loss
        if learns:
            dx[i, :] = F(0.0)
            spread(tree, row, share, total, dx[i])


@kernel
def soft_labels(
    begin: int,
    end: int,
    x: Any,
    y: Any,
    mask: Any,
    dx: Any,
    losses: Any,
    tree: Any,
    rise: Any,
    itself: Any,
    norm: Any,
    below: Any,
    root: Any,
) -> None:
    """The cross entropy with soft labels: log total minus their mean logit."""
    classes = x.shape[1]
    shifted, e = np.empty(classes, F), np.empty(classes, F)
    near, own = np.empty(classes, F), np.empty(classes, F)
    labels = new_labels(classes, len(tree.owner))
    for i in range(begin, end):
        if vanishing(x[i]) != F(0.0):  # or NaN
            losses[i] = F(np.nan)
            continue
        count, weight = find_labels(y[i], row_of(mask, i), tree, labels)
        near[:] = F(0.0)
        # How much each terminal class is the label, over the sum of its weights.
        for place in range(count):
            c = labels.chosen[place]
            w = labels.share[place] / weight
            if tree.terminal[c]:
                near[c] += w / norm[c]
            else:
                share_below(near, c, w / below[c], norm, tree)
        copy(near, own)
        everywhere = sum_up(near, tree) * root
        # The soft label of a class gathers what rises along its ancestors.
        for c in range(tree.first[1]):
            near[c] *= rise[c]
        for s in range(1, len(tree.owner)):
            above = near[tree.owner[s]]
            for c in range(tree.first[s], tree.first[s + 1]):
                near[c] = near[c] * rise[c] + above
        exponentials(x[i], tree.terminal, shifted, e)
        total = sum_of(e, 0, classes)
        summed, mean = finish_soft(shifted, near, own, itself, everywhere, tree.terminal)
        losses[i] = summed * log(total) - mean
        if dx.shape[1]:
            soft_gradient(near, e, summed / total, dx[i])


@part()
def share_below(near: Any, c: int, w: Any, norm: Any, tree: Any) -> None:
    """Give every terminal class at or below a class that is not terminal the weight w."""
    begin, end = c, c + 1  # the descendants of a class in one level are a range
    while begin < end:
        first, last = -1, -1
        for k in range(begin, end):
            if tree.terminal[k]:
                near[k] += w / norm[k]
            s = tree.slot[k]
            if s >= 0:
                if first < 0:
                    first = tree.first[s]
                last = tree.first[s + 1]
        begin, end = first, last


@part()
def finish_soft(x: Any, near: Any, own: Any, itself: Any, everywhere: Any, terminal: Any) -> Any:
    """Complete the soft label of each terminal class; return their sum and mean logit."""
    summed, mean = F(0.0), F(0.0)
    for c in range(len(x)):
        value = near[c] + everywhere + itself[c] * own[c]
        value = value if terminal[c] else F(0.0)
        near[c] = value
        summed += value
        mean += value * (x[c] if terminal[c] else F(0.0))
    return summed, mean


@part()
def soft_gradient(label: Any, e: Any, scale: Any, dx: Any) -> None:
    """Write the probability of each class less its soft label."""
    for c in range(len(dx)):
        dx[c] = e[c] * scale - label[c]


@kernel
def cond_softmax(
    begin: int, end: int, x: Any, y: Any, mask: Any, dx: Any, losses: Any, tree: Any
) -> None:
    """The cross entropy of every group of siblings that holds a positive."""
    positives = np.empty(x.shape[1], np.int32)
    for i in range(begin, end):
        if vanishing(x[i]) != F(0.0):  # or NaN
            losses[i] = F(np.nan)
            continue
        known, given = row_of(mask, i), row_of(dx, i)
        found = find_positives(y[i], known, positives)
        given[:] = F(0.0)
        loss = F(0.0)
        group = -1
        for place in range(found):
            s = tree.parent[positives[place]]
            if s != group:  # positives of one group follow one another
                group = s
                loss += group_loss(x[i], y[i], known, tree.first[s], tree.first[s + 1], given)
        losses[i] = loss


@part()
def group_loss(x: Any, y: Any, known: Any, begin: int, end: int, dx: Any) -> Any:
    """Return the cross entropy of one group and write its gradient."""
    peak, weight = F(-np.inf), F(0.0)
    for c in range(begin, end):
        if len(known) == 0 or known[c]:
            peak = max(peak, x[c])
            weight += F(y[c])
    weight_safe = max(weight, F(1.0))
    total, mean = F(0.0), F(0.0)
    for c in range(begin, end):
        if len(known) == 0 or known[c]:
            total += exp(x[c] - peak)
            mean += F(y[c]) * (x[c] - peak)
    share = weight / weight_safe
    if len(dx):
        for c in range(begin, end):
            if len(known) == 0 or known[c]:
                dx[c] = share * exp(x[c] - peak) / total - F(y[c]) / weight_safe
    return share * log(total) - mean / weight_safe


@kernel
def bce(begin: int, end: int, x: Any, y: Any, mask: Any, dx: Any, losses: Any, scale: Any) -> None:
    """Binary cross entropy of sigmoids, times ``scale``."""
    for i in range(begin, end):
        if vanishing(x[i]) != F(0.0):  # or NaN
            losses[i] = F(np.nan)
            continue
        given = row_of(dx, i)
        given[:] = F(0.0)
        losses[i] = add_bce(x[i], y[i], row_of(mask, i), given, F(0.0), scale)


@kernel
def focal(
    begin: int,
    end: int,
    x: Any,
    y: Any,
    mask: Any,
    dx: Any,
    losses: Any,
    positive: Any,
    negative: Any,
    gamma: Any,
) -> None:
    """The focal loss of sigmoids; ``positive`` and ``negative`` are what the two sides weigh."""
    for i in range(begin, end):
        if vanishing(x[i]) != F(0.0):  # or NaN
            losses[i] = F(np.nan)
            continue
        losses[i] = focal_row(x[i], y[i], row_of(mask, i), row_of(dx, i), positive, negative, gamma)


@part(SUMS)
def focal_row(x: Any, y: Any, known: Any, dx: Any, positive: Any, negative: Any, gamma: Any) -> Any:
    """Return the summed loss of a row and write its gradient.

    With z = -x for a positive and x for a negative, the loss is sigmoid(z)^gamma softplus(z).
    """
    total = F(0.0)
    masked = len(known) > 0
    for c in range(len(x)):
        e = exp(-abs(x[c]))
        tail = log1p(e)
        s = F(1.0) / (F(1.0) + e)
        up, down = max(x[c], F(0.0)) + tail, max(-x[c], F(0.0)) + tail  # softplus(x), softplus(-x)
        p = s if x[c] >= F(0.0) else e * s
        q = e * s if x[c] >= F(0.0) else s
        easy_negative = negative * exp(-gamma * down)  # p^gamma
        easy_positive = positive * exp(-gamma * up)
        t = F(y[c])
        weight = F(1.0) if not masked or known[c] else F(0.0)
        total += weight * (t * easy_positive * down + (F(1.0) - t) * easy_negative * up)
        if len(dx):
            slope = (F(1.0) - t) * easy_negative * (p + gamma * q * up)
            dx[c] = weight * (slope - t * easy_positive * (q + gamma * p * down))
    return total


@kernel
def mcloss(
    begin: int,
    end: int,
    x: Any,
    y: Any,
    mask: Any,
    dx: Any,
    losses: Any,
    tree: Any,
    weight: Any,
    bce_weight: Any,
) -> None:
    """MCLoss on a tree, and bce of sigmoids beside it; everything must be known.

    The value of a class is the largest logit of itself and its descendants, for a positive class of
    the positive ones. Targets are closed: below a negative class there is no positive one, so a
    child counts unless its parent is positive and it is not.

    Args:
        begin: the first row.
        end: the row after the last.
        x: (N, C) logits.
        y: (N, C) targets; MCLoss takes those above 1/2 as positive.
        mask: without columns.
        dx: (N, C) receives the gradient, or without columns.
        losses: (N,) receives the weighted sums.
        tree: the tree.
        weight: what MCLoss weighs.
        bce_weight: what bce weighs; 0 to leave it out.
    """
    classes, slots = x.shape[1], len(tree.owner)
    value, slopes = np.empty(classes, F), np.empty(classes, F)
    best = np.empty(slots, F)  # the largest value of the children that count
    for i in range(begin, end):
        if vanishing(x[i]) != F(0.0):  # or NaN
            losses[i] = F(np.nan)
            continue
        maxima_up(x[i], y[i], tree, value, best)
        losses[i] = weight * margin_row(value, y[i], slopes)
        if dx.shape[1]:
            copy(slopes, dx[i])
            route_down(x[i], y[i], tree, value, best, dx[i])
        if bce_weight > F(0.0):
            losses[i] += add_bce(x[i], y[i], mask[0], row_of(dx, i), weight, bce_weight)


@part(SUMS)
def add_bce(x: Any, y: Any, known: Any, dx: Any, weight: Any, bce_weight: Any) -> Any:
    """Return the weighted bce of a row, and add its gradient to ``weight`` times what is there."""
    total = F(0.0)
    masked = len(known) > 0
    for c in range(len(x)):
        e = exp(-abs(x[c]))
        s = F(1.0) / (F(1.0) + e)
        here = F(1.0) if not masked or known[c] else F(0.0)
        total += here * (max(x[c], F(0.0)) - F(y[c]) * x[c] + log1p(e))
        if len(dx):
            slope = (s if x[c] >= F(0.0) else e * s) - F(y[c])
            dx[c] = weight * dx[c] + here * bce_weight * slope
    return total * bce_weight


@part()
def maxima_up(x: Any, y: Any, tree: Any, value: Any, best: Any) -> None:
    """Set the values of all classes, and the largest below every slot."""
    copy(x, value)
    for s in range(len(tree.owner) - 1, 0, -1):
        c = tree.owner[s]
        highest = F(-np.inf)
        if y[c] > 0.5:
            for k in range(tree.first[s], tree.first[s + 1]):
                highest = max(highest, value[k] if y[k] > 0.5 else F(-np.inf))
        else:
            for k in range(tree.first[s], tree.first[s + 1]):
                highest = max(highest, value[k])
        best[s] = highest
        value[c] = max(x[c], highest)


@part(SUMS)
def margin_row(value: Any, y: Any, slopes: Any) -> Any:
    """Return the sum of softplus(z), z = -value of a positive and value of others; write slopes."""
    total = F(0.0)
    for c in range(len(value)):
        z = -value[c] if y[c] > 0.5 else value[c]
        e = exp(-abs(z))
        s = F(1.0) / (F(1.0) + e)
        total += max(z, F(0.0)) + log1p(e)
        slope = s if z >= F(0.0) else e * s
        slopes[c] = -slope if y[c] > 0.5 else slope
    return total


@part()
def route_down(x: Any, y: Any, tree: Any, value: Any, best: Any, dx: Any) -> None:
    """Move the slope of every class to whoever attains its value.

    A class that ties with what lies below it keeps the gradient; others that tie share it.
    """
    for s in range(1, len(tree.owner)):
        c = tree.owner[s]
        if x[c] >= best[s]:
            continue
        begin, end, positive = tree.first[s], tree.first[s + 1], y[c] > 0.5
        ties, last = I(0), I(0)
        for k in range(begin, end):
            attains = value[k] == best[s] and (not positive or y[k] > 0.5)
            ties += I(1) if attains else I(0)
            last = choose(attains, I(k), last)
        given = dx[c] / F(ties)
        dx[c] = F(0.0)
        if ties == 1:
            dx[last] += given
            continue
        for k in range(begin, end):
            if value[k] == best[s] and (not positive or y[k] > 0.5):
                dx[k] += given
