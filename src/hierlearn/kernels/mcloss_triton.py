# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of MCLoss on a tree, for targets that are closed under ancestors.

The value of a class is the greatest logit of itself and its descendants, for a class whose target
is 1 only of those whose target is 1. In closed targets the children of a class with target 0 all
have target 0, so one value per class is enough: a child counts if its target is not less than that
of its parent. ``best`` holds the greatest value among the children of each slot, ``ties`` how many
attain it; as in the plain path, they share the gradient evenly, and the class itself comes first.
"""

import triton
import triton.language as tl

from hierlearn.kernels.entries_triton import exp_minus, inverse, log1p, product_minus_1
from hierlearn.kernels.tree_triton import MINUS_INF, column_at, is_one, window_columns


@triton.jit
def best_within(v, n, group, w, k, other):
    """Return the greater of two neighbors of a scan if they are of one group, and the ties."""
    high = tl.where(group == other, tl.maximum(v, w), w)
    same = (group == other) & (v == high)
    return high, tl.where(same, n, 0.0) + tl.where(w == high, k, 0.0), other


@triton.jit
def max_windows(
    x, y, windows, group, slot, parent, owner, best, ties, partials,
    N, C, S, window_0, part_0, height, x_row, y_row,
    PIECES: tl.constexpr, INNER: tl.constexpr, TOP: tl.constexpr, FAST: tl.constexpr,
    K: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Take the maxima of the groups of one stage, and add up the losses of its classes.

    The logarithms of the losses of several rows are one logarithm of a product.
    """
    w = window_0 + tl.program_id(0)
    cols, inside, end = window_columns(windows, w, K, VEC)
    mine = tl.load(group + cols, mask=inside, other=-1)
    following = tl.load(group + cols + 1, mask=inside & (cols + 1 < end), other=-1)
    last = inside & (mine != following)
    readable = cols // VEC < C // VEC
    own = tl.full([K], -1, tl.int32)
    above = tl.full([K], -1, tl.int32)
    if not PIECES:
        if INNER:
            own = tl.load(slot + cols, mask=inside, other=-1)
        if not TOP:
            above = tl.load(owner + tl.load(parent + cols, mask=inside, other=0), mask=inside)
            above = tl.where(inside, above, 0)
    losses = tl.zeros([K], tl.float32)
    start = tl.program_id(1) * height
    end_row = tl.minimum(start + height, N)
    for begin in range(start, end_row, 64):
        grown = tl.zeros([K], tl.float32)  # below 2^64
        for row in range(begin, tl.minimum(begin + 64, end_row)):
            long = tl.cast(row, tl.int64)
            number = tl.full([K], 1.0, tl.float32)
            if PIECES:
                value = tl.load(best + long * S + cols, mask=inside, other=MINUS_INF)
                number = tl.load(ties + long * S + cols, mask=inside, other=0.0)
            else:
                value = tl.load(column_at(x, long * x_row, cols, VEC), mask=readable, other=0.0)
                value = value.to(tl.float32)
                one = is_one(tl.load(column_at(y, long * y_row, cols, VEC), mask=readable, other=0))
                if INNER:
                    below = tl.load(best + long * S + own, mask=own >= 0, other=MINUS_INF)
                    value = tl.maximum(value, below, propagate_nan=tl.PropagateNan.ALL)
                z = tl.where(one, -value, value)
                losses += tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL)
                grown = product_minus_1(grown, exp_minus(tl.abs(z), FAST))
                if not TOP:
                    needed = is_one(tl.load(y + long * y_row + above, mask=inside, other=0))
                    value = tl.where(inside & (one | ~needed), value, MINUS_INF)
            if PIECES or not TOP:
                high, count, _ = tl.associative_scan((value, number, mine), 0, best_within)
                tl.store(best + long * S + mine, high, mask=last)
                tl.store(ties + long * S + mine, count, mask=last)
        losses += log1p(grown)
    part = part_0 + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(partials + part, tl.sum(tl.where(inside, losses, 0.0), axis=0))


@triton.jit
def slope_of(value, one, FAST: tl.constexpr):
    """Return the derivative of softplus(-value) where the target is 1, else of softplus(value)."""
    z = tl.where(one, -value, value)
    slope = inverse(1.0 + exp_minus(z, FAST), FAST)
    return tl.where(one, -slope, slope)


@triton.jit
def route_down(
    x, y, owner, parent, slot_bounds, best, ties, given, kept, upstream,
    S, L, scale, x_row, y_row, FAST: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """From the top down, one row per program: the gradient that every inner class keeps or gives.

    What is given to children is negative if the target of the class is 1, else positive.
    """
    row = tl.program_id(0)
    long = tl.cast(row, tl.int64)
    at = long * S
    factor = tl.load(upstream).to(tl.float32) * scale
    tl.store(given + at, 0.0)
    tl.store(best + at, 0.0)
    tl.debug_barrier()
    for level in range(1, L):
        end = tl.load(slot_bounds + level + 1)
        for start in range(tl.load(slot_bounds + level), end, B):
            mine = start + tl.arange(0, B)
            ok = mine < end
            node = tl.load(owner + mine, mask=ok, other=0)
            above = tl.load(parent + node, mask=ok, other=0)
            own = tl.load(x + long * x_row + node, mask=ok, other=0.0).to(tl.float32)
            one = is_one(tl.load(y + long * y_row + node, mask=ok, other=0))
            below = tl.load(best + at + mine, mask=ok, other=0.0)
            value = tl.maximum(own, below)
            found = slope_of(value, one, FAST) * factor
            most = tl.load(best + at + above, mask=ok, other=0.0)
            due = tl.load(given + at + above, mask=ok, other=0.0)
            found += tl.where((value == most) & (one | (due * factor > 0.0)), due, 0.0)
            passes = below > own
            number = tl.load(ties + at + mine, mask=ok, other=1.0)
            tl.store(given + at + mine, tl.where(passes, found / number, 0.0), mask=ok)
            tl.store(kept + at + mine, tl.where(passes, 0.0, found), mask=ok)
        tl.debug_barrier()


@triton.jit
def write_mcloss(
    x, y, slot, parent, best, given, kept, upstream, gradient,
    C, S, scale, x_row, y_row,
    FAST: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a row."""
    row = tl.program_id(0)
    long = tl.cast(row, tl.int64)
    at = long * S
    factor = tl.load(upstream).to(tl.float32) * scale
    for start in range(0, C, B):
        cols = start + tl.arange(0, B)
        inside = cols // VEC < C // VEC
        own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
        above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
        value = tl.load(column_at(x, long * x_row, cols, VEC), mask=inside, other=0.0)
        value = value.to(tl.float32)
        one = is_one(tl.load(column_at(y, long * y_row, cols, VEC), mask=inside, other=0))
        most = tl.load(best + at + above, mask=inside, other=0.0)
        found = slope_of(value, one, FAST) * factor
        # What the slots give is read only where it goes.
        attains = inside & (value == most)
        due = tl.load(given + at + above, mask=attains, other=0.0)
        found += tl.where(one | (due * factor > 0.0), due, 0.0)
        found = tl.where(own >= 0, tl.load(kept + at + own, mask=own >= 0, other=0.0), found)
        tl.store(column_at(gradient, long * C, cols, VEC), found, mask=inside)
