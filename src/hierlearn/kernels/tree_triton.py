# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of a tree: its sums, the softmax link, MCLoss; see ``tree_layout``.

**The softmax**, summed upward. With x the logits, log p(c) = log of the sum over the terminal
classes t below c of exp(x_t), less that of all. Every window of groups has a reference, the
greatest logit below it (``tops``), and every slot the log of its sum relative to that (``logp``),
so that logits with a large part in common lose nothing; the sweep down replaces it by log p. 1 - p
needs care only where p is near 1. The *heavy* classes, p > 0.6, are a chain from the top, at most
one per level; outside of one lies what is outside of its parent and the rest of its group.
``beyond`` is log(1 - p) of the heavy class of each row and level. For all others log(1 - p) is
log1p(-p).

**MCLoss**, for targets that are closed under ancestors. The value of a class is the greatest logit
of itself and its descendants, for a class whose target is 1 only of those whose target is 1. In
closed targets the children of a class with target 0 all have target 0, so one value per class is
enough: a child counts if its target is not less than that of its parent. ``best`` holds the
greatest value among the children of each slot, ``ties`` how many attain it; as in the plain path,
they share the gradient evenly, and the class itself comes first.
"""

import triton
import triton.language as tl

from hierlearn.kernels.entries_triton import exp, exp_minus, inverse, log1p, product_minus_1

LOG_ZERO = tl.constexpr(-1e30)  # log(0), but finite
NOTHING = tl.constexpr(-1e29)  # a log(1 - p) below this is that of 0
MINUS_INF = tl.constexpr(float("-inf"))
HEAVY = tl.constexpr(-0.5)  # log p beyond which a class is heavy
NEARLY = tl.constexpr(-0.501)  # the same for the chain: log p of parent and child are rounded
ABSENT = tl.constexpr(1.0)  # in ``beyond``: no heavy class in this level
WRONG = tl.constexpr(0.693147)  # the bce from which p lies on the wrong side of 1/2, or on it
TINY = tl.constexpr(1e-30)  # a sum below this may have lost terms


@triton.jit
def add_within(v, group, w, other):
    """Add two neighbors of a scan if they are of one group."""
    return tl.where(group == other, v + w, w), other


@triton.jit
def max_within(v, group, w, other):
    """Return the greater of two neighbors of a scan if they are of one group."""
    return tl.where(group == other, tl.maximum(v, w), w), other


@triton.jit
def log(x, FAST: tl.constexpr):
    """The natural logarithm of normal numbers."""
    if FAST:
        log2 = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1
        )
        found = log2 * 0.6931472
    else:
        found = tl.log(x)
    return found


@triton.jit
def fold_tile(high, log_sum, group, last, mass, OWN: tl.constexpr, FAST: tl.constexpr):
    """Sum the groups of a window of a row; return its reference, and the log sums.

    Args:
        high: the greatest logit below each item, MINUS_INF for none.
        log_sum: the log of the sum of each item, relative to ``high``.
        group: what each item belongs to; neighbors of the same group are summed.
        last: whether an item is the last of its group, where its sum is returned.
        mass: the logit of the class above, if terminal, at the last item of its group.
        OWN: whether there is such a class.
        FAST: whether to use single instructions of NVIDIA GPUs.
    """
    top = tl.max(high, axis=0)
    if OWN:
        top = tl.maximum(top, tl.max(mass, axis=0))
    top = tl.maximum(top, LOG_ZERO)
    w = (high - top) + log_sum
    total, _ = tl.associative_scan((exp(w, FAST), group), 0, add_within)
    if OWN:
        total += exp(mass - top, FAST)
    found = log(total, FAST)
    if tl.max((last & ((total < TINY) | (total != total))).to(tl.int32), axis=0) > 0:
        # Terms may have vanished next to those of other groups: relative to the greatest of each.
        most = w
        if OWN:
            most = tl.maximum(w, mass - top)
        before, _ = tl.associative_scan((most, group), 0, max_within)
        behind, _ = tl.associative_scan((most, group), 0, max_within, reverse=True)
        most = tl.maximum(tl.maximum(before, behind), LOG_ZERO)
        total, _ = tl.associative_scan((tl.exp(w - most), group), 0, add_within)
        if OWN:
            total += tl.exp(mass - top - most)
        found = tl.where(total == 0.0, LOG_ZERO, most + tl.log(total))
    return top, found


@triton.jit
def window_columns(windows, w, K: tl.constexpr, VEC: tl.constexpr):
    """Return the columns of a window, aligned to VEC, and which of them are inside."""
    low = tl.load(windows + 2 * w)
    high = tl.load(windows + 2 * w + 1)
    cols = low // VEC * VEC + tl.arange(0, K)
    return cols, (cols >= low) & (cols < high), high


@triton.jit
def fold_windows(
    x, windows, group, own, slot, window_of, tops, logp,
    N, C, S, W, x_row, window_0, height,
    PIECES: tl.constexpr, INNER: tl.constexpr, OWN: tl.constexpr, FAST: tl.constexpr,
    K: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sum the groups of one stage, one window and ``height`` rows per program."""
    w = window_0 + tl.program_id(0)
    cols, inside, end = window_columns(windows, w, K, VEC)
    mine = tl.load(group + cols, mask=inside, other=-1)
    following = tl.load(group + cols + 1, mask=inside & (cols + 1 < end), other=-1)
    last = inside & (mine != following)
    item = cols
    if not PIECES and INNER:
        item = tl.load(slot + cols, mask=inside, other=-1)
    node = tl.full([K], -1, tl.int32)
    if OWN:
        node = tl.load(own + mine, mask=last, other=-1)
    ref = tl.zeros([K], tl.int32)
    if PIECES or INNER:
        ref = tl.load(window_of + item, mask=inside & (item >= 0), other=0)
    start = tl.program_id(1) * height
    for row in tl.range(start, tl.minimum(start + height, N), num_stages=STAGES):
        long = tl.cast(row, tl.int64)
        log_sum = tl.zeros([K], tl.float32)
        if PIECES:
            high = tl.load(tops + long * W + ref, mask=inside, other=MINUS_INF)
            log_sum = tl.load(logp + long * S + item, mask=inside, other=0.0)
        else:
            at = column_at(x, long * x_row, cols, VEC)
            high = tl.load(at, mask=cols // VEC < C // VEC, other=0.0).to(tl.float32)
            high = tl.where(inside, high, MINUS_INF)
            if INNER:
                inner = inside & (item >= 0)
                high = tl.where(inner, tl.load(tops + long * W + ref, mask=inner, other=0.0), high)
                log_sum = tl.load(logp + long * S + item, mask=inner, other=0.0)
        mass = high
        if OWN:
            at = x + long * x_row + node
            mass = tl.load(at, mask=node >= 0, other=MINUS_INF).to(tl.float32)
        top, found = fold_tile(high, log_sum, mine, last, mass, OWN, FAST)
        tl.store(logp + long * S + mine, found, mask=last)
        tl.store(tops + long * W + w, top)


@triton.jit
def log_add(a, b):
    """log(exp(a) + exp(b))."""
    high = tl.maximum(a, b)
    return high + log1p(tl.exp(tl.minimum(a, b) - high))


@triton.jit
def follow_chain(
    x, children, own, slot, parent, window_of, tops, logp, norms, beyond, drops, tails,
    row, S, W, L, x_row, K: tl.constexpr,
):  # fmt: skip
    """Write ``beyond`` of one row, its norms (the greatest logit and the log sum) and its tail.

    The tail is the heavy leaf, or -1, and the slot above it.
    """
    values = x + tl.cast(row, tl.int64) * x_row
    refs = tops + tl.cast(row, tl.int64) * W
    sums = logp + tl.cast(row, tl.int64) * S
    high = tl.load(refs + tl.load(window_of))
    total = tl.load(sums)
    tl.store(norms + 2 * row, high)
    tl.store(norms + 2 * row + 1, total)
    for level in range(L):
        tl.store(beyond + row * L + level, ABSENT)
        tl.store(drops + row * L + level, 0.0)
    tl.store(tails + 2 * row, -1)
    k = tl.arange(0, K)
    here = 0  # the slot that the chain has reached
    outside = LOG_ZERO + 0.0
    level = 0
    while here >= 0:
        begin = tl.load(children + 3 * here)
        live = k < tl.load(children + 3 * here + 1)
        pieces = tl.load(children + 3 * here + 2) != 0
        classes = tl.load(children + 3 * here + 2) == 0
        item = tl.load(slot + begin + k, mask=live & classes, other=-1)
        item = tl.where(live & pieces, begin + k, item)
        inner = item >= 0
        value = tl.load(values + begin + k, mask=live & (item < 0), other=MINUS_INF).to(tl.float32)
        ref = tl.load(window_of + item, mask=inner, other=0)
        value = tl.where(inner, tl.load(refs + ref, mask=inner, other=0.0), value)
        log_sum = tl.load(sums + item, mask=inner, other=0.0)
        log_p = (value - high) + (log_sum - total)
        best = tl.max(log_p, axis=0)
        place = tl.min(tl.where(log_p == best, k, K), axis=0)
        node = tl.load(own + here)
        mass = tl.load(values + node, mask=node >= 0, other=MINUS_INF).to(tl.float32)
        mass = (mass - high) - total
        others = tl.where(live & (k != place), log_p, MINUS_INF)
        most = tl.maximum(tl.maximum(tl.max(others, axis=0), mass), LOG_ZERO)
        rest = tl.sum(tl.exp(others - most), axis=0) + tl.exp(mass - most)
        rest = tl.where(rest > 0.0, most + tl.log(tl.where(rest > 0.0, rest, 1.0)), LOG_ZERO)
        outside = log_add(outside, rest)
        heavy = best > NEARLY
        below = tl.max(tl.where(k == place, item, -1), axis=0)
        if classes:
            tl.store(beyond + row * L + level, tl.where(heavy, outside, ABSENT))
            if below < 0:
                tl.store(tails + 2 * row, tl.where(best > HEAVY, begin + place, -1))
                tl.store(tails + 2 * row + 1, tl.load(parent + begin + place, mask=heavy, other=0))
            level += 1
        here = tl.where(heavy, below, -1)


@triton.jit
def log1p_of(x, FAST: tl.constexpr):
    """log(1 + x) for x > -1, accurate for small x."""
    if FAST:
        log2 = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [1.0 + x], tl.float32, is_pure=True, pack=1
        )
        series = 0.2 - x * 0.16666667
        series = 0.33333334 - x * (0.25 - x * series)
        series = x * (1.0 - x * (0.5 - x * series))
        found = tl.where(tl.abs(x) < 0.1, series, log2 * 0.6931472)
    else:
        found = log1p(x)
    return found


@triton.jit
def column_at(array, offset, cols, VEC: tl.constexpr):
    """Return the pointers of columns of one row; VEC neighbors are read together."""
    size: tl.constexpr = array.dtype.element_ty.primitive_bitwidth // 8
    return tl.multiple_of(array + offset + cols, (VEC * size,))


@triton.jit
def node_logs(
    x, logp, norms, row, cols, inside, own, S, x_row, INNER: tl.constexpr, VEC: tl.constexpr
):  # fmt: skip
    """Return log p of columns of a row; ``own`` is the slot of an inner class, else negative."""
    long = tl.cast(row, tl.int64)
    high = tl.load(norms + 2 * row)
    total = tl.load(norms + 2 * row + 1)
    leaf = tl.load(column_at(x, long * x_row, cols, VEC), mask=inside, other=0.0).to(tl.float32)
    found = (leaf - high) + (0.0 - total)
    if INNER:
        inner = tl.load(logp + long * S + own, mask=own >= 0, other=0.0)
        found = tl.where(own >= 0, inner, found)
    return found


@triton.jit
def log_outside(log_p, beyond, at, there, FAST: tl.constexpr):
    """Return log(1 - p), given where ``beyond`` holds that of the heavy class of row and level."""
    heavy = log_p > HEAVY
    light = log1p_of(-exp(tl.where(heavy, LOG_ZERO, log_p), FAST), FAST)
    return tl.where(heavy, tl.load(beyond + at, mask=heavy & there, other=0.0), light)


@triton.jit
def is_one(y):
    """Whether a target is 1."""
    return y > 0.5 if y.dtype.is_floating() else y != 0


@triton.jit
def write_pair(
    x, tiles, slot, level, logp, norms, beyond, log_p_out, log_not_p_out,
    N, C, S, L, x_row, height,
    INNER: tl.constexpr, FAST: tl.constexpr,
    B: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write log p and log(1 - p) of every class."""
    cols = tl.load(tiles + tl.program_id(0)) * B + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    floor = tl.load(column_at(level, 0, cols, VEC), mask=inside, other=0)
    own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
    start = tl.program_id(1) * height
    for row in tl.range(start, tl.minimum(start + height, N), num_stages=STAGES):
        log_p = node_logs(x, logp, norms, row, cols, inside, own, S, x_row, INNER, VEC)
        at = tl.cast(row, tl.int64) * C
        tl.store(column_at(log_p_out, at, cols, VEC), log_p, mask=inside)
        log_not_p = log_outside(log_p, beyond, row * L + floor, inside, FAST)
        tl.store(column_at(log_not_p_out, at, cols, VEC), log_not_p, mask=inside)


@triton.jit
def descend(
    x, y, m, children, owner, own, slot, parent, window_of, slot_bounds,
    tops, logp, peak, least, norms, beyond, drops, tails, tail_keeps,
    S, W, L, x_row, y_row, m_row,
    SOFTMAX: tl.constexpr, BOUND: tl.constexpr, MASKED: tl.constexpr,
    FAST: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Down the inner classes, one row per program: log p, and if BOUND the peak.

    The peak of a slot is the greatest loss of its class and of the ancestors, for sigmoids the
    greatest z = (1 - 2y) x. ``least`` is 1 - exp(-peak): a leaf whose target is 0 is bound if its p
    is less than this.
    """
    row = tl.program_id(0)
    long = tl.cast(row, tl.int64)
    at = long * S
    high = 0.0
    total = 0.0
    if SOFTMAX:
        follow_chain(
            x, children, own, slot, parent, window_of, tops, logp, norms, beyond, drops, tails,
            row, S, W, L, x_row, K,
        )  # fmt: skip
        high = tl.load(tops + long * W + tl.load(window_of))
        total = tl.load(logp + at)
    tl.debug_barrier()
    if SOFTMAX:
        tl.store(logp + at, 0.0)
    if BOUND:
        tl.store(peak + at, MINUS_INF)
        if SOFTMAX:
            tl.store(least + at, -1.0)
    tl.debug_barrier()
    for level in range(1, L):
        end = tl.load(slot_bounds + level + 1)
        for start in range(tl.load(slot_bounds + level), end, B):
            mine = start + tl.arange(0, B)
            ok = mine < end
            node = tl.load(owner + mine, mask=ok, other=0)
            log_p = tl.zeros([B], tl.float32)
            if SOFTMAX:
                ref = tl.load(window_of + mine, mask=ok, other=0)
                value = tl.load(tops + long * W + ref, mask=ok, other=0.0)
                log_sum = tl.load(logp + at + mine, mask=ok, other=0.0)
                log_p = (value - high) + (log_sum - total)
                tl.store(logp + at + mine, log_p, mask=ok)
            if BOUND:
                one = is_one(tl.load(y + long * y_row + node, mask=ok, other=0))
                if SOFTMAX:
                    place = tl.zeros([B], tl.int32) + (row * L + level - 1)
                    missed = log_outside(log_p, beyond, place, ok, FAST)
                    loss = pair_loss(log_p, missed, one)
                else:
                    value = tl.load(x + long * x_row + node, mask=ok, other=0.0).to(tl.float32)
                    loss = tl.where(one, -value, value)
                if MASKED:
                    known = tl.load(m + long * m_row + node, mask=ok, other=0) != 0
                    loss = tl.where(known, loss, MINUS_INF)
                above = tl.load(peak + at + tl.load(parent + node, mask=ok, other=0), mask=ok)
                loss = tl.maximum(loss, above)
                tl.store(peak + at + mine, loss, mask=ok)
                if SOFTMAX:
                    tl.store(least + at + mine, one_minus_exp(loss), mask=ok)
        if BOUND:
            tl.debug_barrier()
    if SOFTMAX and BOUND:
        leaf = tl.load(tails + 2 * row)
        there = leaf >= 0
        limit = tl.load(peak + at + tl.load(tails + 2 * row + 1, mask=there, other=0), mask=there)
        loss = tail_loss(x, y, norms, beyond, leaf, row, L, x_row, y_row)
        tl.store(tail_keeps + row, tl.where(loss >= limit, 1.0, 0.0), mask=there)


@triton.jit
def tail_loss(x, y, norms, beyond, leaf, row, L, x_row, y_row):
    """Return the loss of the heavy leaf of a row, whose level is the last with a heavy class."""
    long = tl.cast(row, tl.int64)
    there = leaf >= 0
    log_out = ABSENT + 0.0
    for level in range(L):
        found = tl.load(beyond + row * L + level)
        log_out = tl.where(found == ABSENT, log_out, found)
    value = tl.load(x + long * x_row + leaf, mask=there, other=0.0).to(tl.float32)
    log_p = (value - tl.load(norms + 2 * row)) + (0.0 - tl.load(norms + 2 * row + 1))
    one = is_one(tl.load(y + long * y_row + leaf, mask=there, other=0))
    return pair_loss(log_p, log_out, one)


@triton.jit
def one_minus_exp(x):
    """1 - exp(-x), accurate for small x; -1 for a negative x."""
    series = x * (1.0 - x * (0.5 - x * (0.16666667 - x * (0.041666668 - x * 0.008333334))))
    return tl.where(x < 0.0, -1.0, tl.where(x < 0.1, series, 1.0 - tl.exp(-x)))


@triton.jit
def pair_loss(log_p, missed, one):
    """Return bce; not negative, and NaN where a logarithm is."""
    return tl.maximum(-tl.where(one, log_p, missed), 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def logistic(z, FAST: tl.constexpr):
    """softplus(z)."""
    tail = log1p_of(exp_minus(tl.abs(z), FAST), FAST)
    return tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL) + tail


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
