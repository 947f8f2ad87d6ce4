# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of a softmax over the leaves of a tree, summed upward; ``tree_layout``.

With x the logits, log p(c) = log of the sum over the terminal classes t below c of exp(x_t), less
that of all. A slot holds its greatest logit (``top``) and the log of the sum relative to it
(``grown``), so that logits with a large part in common lose nothing. 1 - p needs care only where p
is near 1. The *heavy* classes, p > 0.6, are a chain from the top, at most one per level; outside of
one lies what is outside of its parent and the rest of its group,

    1 - p(c) = (1 - p(parent)) + p(parent) (the fraction of the group that is not c)

where c is the greatest of its group. ``rest`` is the log of that fraction, and ``beyond`` that of
1 - p for each row and level. For all others log(1 - p) is log1p(-p).
"""

import triton
import triton.language as tl

from hierlearn.kernels.entries_triton import log1p

LOG_ZERO = tl.constexpr(-1e30)  # log(0), but finite
NOTHING = tl.constexpr(-1e29)  # a log(1 - p) below this is that of 0
MINUS_INF = tl.constexpr(float("-inf"))
HEAVY = tl.constexpr(-0.5)  # log p beyond which a class is heavy
ABSENT = tl.constexpr(1.0)  # in ``beyond``: no heavy class in this level
WRONG = tl.constexpr(0.693147)  # the bce from which p lies on the wrong side of 1/2, or on it


@triton.jit
def child_values(x, top, grown, slot, cols, live, LEAVES: tl.constexpr):
    """Return the greatest logit below each class of a tile, and the log sum relative to it."""
    if LEAVES:
        high = tl.load(x + cols, mask=live, other=MINUS_INF).to(tl.float32)
        log_sum = tl.zeros_like(high)
    else:
        own = tl.load(slot + cols, mask=live, other=-1)
        inner = own >= 0
        high = tl.load(x + cols, mask=live & (own < 0), other=MINUS_INF).to(tl.float32)
        high = tl.where(inner, tl.load(top + own, mask=inner, other=MINUS_INF), high)
        log_sum = tl.load(grown + own, mask=inner, other=0.0)
    return high, log_sum


@triton.jit
def fold_groups(
    x, terminal, first, owner, slot, top, grown, rest, best,
    N, C, S, x_row, slot_0, slots, height,
    LEAVES: tl.constexpr, OWN: tl.constexpr, WHOLE: tl.constexpr,
    A: tl.constexpr, P: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Sum the groups of one level: top, grown, rest, and the greatest class (best) of each slot.

    A tile holds K children of each of P slots; A is the axis of the children, 0 for small groups.
    """
    mine = slot_0 + tl.program_id(0) * P + tl.arange(0, P)
    ok = mine < slot_0 + slots
    begin = tl.load(first + mine, mask=ok, other=0)
    size = tl.load(first + mine + 1, mask=ok, other=0) - begin
    node = tl.load(owner + mine, mask=ok, other=-1)
    ends = ok & (node >= 0)
    if OWN:
        ends = tl.load(terminal + node, mask=ends, other=0) != 0
    longest = tl.max(size, axis=0)
    k = tl.expand_dims(tl.arange(0, K), 1 - A)
    begins = tl.expand_dims(begin, A)
    sizes = tl.expand_dims(size, A)
    start = tl.program_id(1) * height
    for row in range(start, tl.minimum(start + height, N)):
        values = x + tl.cast(row, tl.int64) * x_row
        at = tl.cast(row, tl.int64) * S
        own = tl.full([P], LOG_ZERO, tl.float32)
        if OWN:
            own = tl.load(values + node, mask=ends, other=LOG_ZERO).to(tl.float32)
        if WHOLE:
            cols = begins + k
            high, log_sum = child_values(
                values, top + at, grown + at, slot, cols, k < sizes, LEAVES
            )
            peak = tl.maximum(tl.max(high, axis=A), own)
            w = high - tl.expand_dims(peak, A) + log_sum
            mass = own - peak
            first_w = tl.maximum(tl.max(w, axis=A), mass)
            tied = w == tl.expand_dims(first_w, A)
            number = tl.sum(tied.to(tl.int32), axis=A)
            second = tl.max(tl.where(tied, MINUS_INF, w), axis=A)
            place = tl.min(tl.where(tied, cols, C), axis=A)
        else:  # the same in steps of K columns
            peak = own
            for begin_k in range(0, longest, K):
                cols, live = begins + begin_k + k, begin_k + k < sizes
                high, log_sum = child_values(values, top + at, grown + at, slot, cols, live, LEAVES)
                peak = tl.maximum(peak, tl.max(high, axis=A))
            mass = own - peak
            first_w = mass
            for begin_k in range(0, longest, K):
                cols, live = begins + begin_k + k, begin_k + k < sizes
                high, log_sum = child_values(values, top + at, grown + at, slot, cols, live, LEAVES)
                w = high - tl.expand_dims(peak, A) + log_sum
                first_w = tl.maximum(first_w, tl.max(w, axis=A))
            number = tl.zeros([P], tl.int32)
            second = tl.full([P], MINUS_INF, tl.float32)
            place = tl.zeros([P], tl.int32) + C
            for begin_k in range(0, longest, K):
                cols, live = begins + begin_k + k, begin_k + k < sizes
                high, log_sum = child_values(values, top + at, grown + at, slot, cols, live, LEAVES)
                w = high - tl.expand_dims(peak, A) + log_sum
                tied = w == tl.expand_dims(first_w, A)
                number += tl.sum(tied.to(tl.int32), axis=A)
                second = tl.maximum(second, tl.max(tl.where(tied, MINUS_INF, w), axis=A))
                place = tl.minimum(place, tl.min(tl.where(tied, cols, C), axis=A))
        # Without one of the greatest: ``second`` and the sum relative to it.
        is_first = mass == first_w
        number += is_first.to(tl.int32)
        second = tl.maximum(second, tl.where(is_first, LOG_ZERO, mass))
        second = tl.where(number > 1, first_w, tl.maximum(second, LOG_ZERO))
        seconds = tl.expand_dims(second, A)
        if WHOLE:
            others = tl.sum(tl.where(tied, 0.0, tl.exp(w - seconds)), axis=A)
        else:
            others = tl.zeros([P], tl.float32)
            for begin_k in range(0, longest, K):
                cols, live = begins + begin_k + k, begin_k + k < sizes
                high, log_sum = child_values(values, top + at, grown + at, slot, cols, live, LEAVES)
                w = high - tl.expand_dims(peak, A) + log_sum
                tied = w == tl.expand_dims(first_w, A)
                others += tl.sum(tl.where(tied, 0.0, tl.exp(w - seconds)), axis=A)
        others += tl.where(is_first, 0.0, tl.exp(mass - second)) + (number - 1)
        total = first_w + log1p(others * tl.exp(second - first_w))
        tl.store(top + at + mine, peak, mask=ok)
        tl.store(grown + at + mine, total, mask=ok)
        tl.store(rest + at + mine, second + tl.log(others) - total, mask=ok)
        tl.store(best + at + mine, place, mask=ok)


@triton.jit
def log_add(a, b):
    """log(exp(a) + exp(b))."""
    high = tl.maximum(a, b)
    return high + log1p(tl.exp(tl.minimum(a, b) - high))


@triton.jit
def follow_chain(
    x, slot, top, grown, rest, best, norms, beyond, row, C, S, L, x_row
):  # fmt: skip
    """Write ``beyond`` of one row, and its norms: the greatest logit and the log sum of all."""
    at = tl.cast(row, tl.int64) * S
    high = tl.load(top + at)
    total = tl.load(grown + at)
    tl.store(norms + 2 * row, high)
    tl.store(norms + 2 * row + 1, total)
    here = 0  # the slot that the chain has reached
    log_p = 0.0
    outside = LOG_ZERO + 0.0
    alive = high == high
    for level in range(L):
        node = tl.load(best + at + here, mask=alive, other=C)
        fraction = tl.load(rest + at + here, mask=alive, other=0.0)
        outside = log_add(outside, tl.maximum(log_p + fraction, LOG_ZERO))
        there = node < C
        own = tl.load(slot + node, mask=there, other=-1)
        inner = own >= 0
        leaf = tl.load(x + tl.cast(row, tl.int64) * x_row + node, mask=there & (own < 0), other=0.0)
        value = tl.where(inner, tl.load(top + at + own, mask=inner, other=0.0), leaf)
        log_p = (value - high) + (tl.load(grown + at + own, mask=inner, other=0.0) - total)
        heavy = there & (log_p > HEAVY)
        tl.store(beyond + row * L + level, tl.where(heavy, outside, ABSENT))
        alive = heavy & inner
        here = tl.where(alive, own, 0)


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
def node_logs(x, logp, norms, row, cols, inside, own, S, x_row, VEC: tl.constexpr):
    """Return log p of columns of a row; ``own`` is the slot of an inner class, else negative."""
    long = tl.cast(row, tl.int64)
    high = tl.load(norms + 2 * row)
    total = tl.load(norms + 2 * row + 1)
    leaf = tl.load(column_at(x, long * x_row, cols, VEC), mask=inside, other=0.0).to(tl.float32)
    known = tl.load(logp + long * S + own, mask=own >= 0, other=0.0)
    return tl.where(own >= 0, known, (leaf - high) + (0.0 - total))


@triton.jit
def log_outside(log_p, beyond, at, there, FAST: tl.constexpr):
    """Return log(1 - p), given where ``beyond`` holds that of the heavy class of row and level."""
    heavy = log_p > HEAVY
    light = log1p_of(-tl.exp(tl.where(heavy, LOG_ZERO, log_p)), FAST)
    return tl.where(heavy, tl.load(beyond + at, mask=heavy & there, other=0.0), light)


@triton.jit
def is_one(y):
    """Whether a target is 1."""
    return y > 0.5 if y.dtype.is_floating() else y != 0


@triton.jit
def write_pair(
    x, slot, level, logp, norms, beyond, log_p_out, log_not_p_out,
    N, C, S, L, x_row, height,
    FAST: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Write log p and log(1 - p) of every class."""
    cols = tl.program_id(0) * B + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    floor = tl.load(column_at(level, 0, cols, VEC), mask=inside, other=0)
    own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
    start = tl.program_id(1) * height
    for row in range(start, tl.minimum(start + height, N)):
        log_p = node_logs(x, logp, norms, row, cols, inside, own, S, x_row, VEC)
        at = tl.cast(row, tl.int64) * C
        tl.store(column_at(log_p_out, at, cols, VEC), log_p, mask=inside)
        log_not_p = log_outside(log_p, beyond, row * L + floor, inside, FAST)
        tl.store(column_at(log_not_p_out, at, cols, VEC), log_not_p, mask=inside)


@triton.jit
def descend(
    x, y, m, owner, slot, parent, slot_bounds, top, grown, rest, best, logp, peak, norms, beyond,
    N, C, S, L, x_row, y_row, m_row,  # noqa: ARG001
    SOFTMAX: tl.constexpr, BOUND: tl.constexpr, MASKED: tl.constexpr,
    FAST: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """From the top down, one row per program: log p of the inner classes, and if BOUND the peak.

    The peak of a slot is the greatest loss of its class and of the ancestors.
    """
    row = tl.program_id(0)
    long = tl.cast(row, tl.int64)
    at = long * S
    high = 0.0
    total = 0.0
    if SOFTMAX:
        follow_chain(x, slot, top, grown, rest, best, norms, beyond, row, C, S, L, x_row)
        high = tl.load(top + at)
        total = tl.load(grown + at)
        tl.store(logp + at, 0.0)
    if BOUND:
        tl.store(peak + at, MINUS_INF)
    tl.debug_barrier()
    for level in range(1, L):
        end = tl.load(slot_bounds + level + 1)
        for start in range(tl.load(slot_bounds + level), end, B):
            mine = start + tl.arange(0, B)
            ok = mine < end
            node = tl.load(owner + mine, mask=ok, other=0)
            log_p = tl.zeros([B], tl.float32)
            if SOFTMAX:
                value = tl.load(top + at + mine, mask=ok, other=0.0)
                log_sum = tl.load(grown + at + mine, mask=ok, other=0.0)
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
                    loss = logistic(tl.where(one, -value, value), FAST)
                if MASKED:
                    known = tl.load(m + long * m_row + node, mask=ok, other=0) != 0
                    loss = tl.where(known, loss, MINUS_INF)
                above = tl.load(peak + at + tl.load(parent + node, mask=ok, other=0), mask=ok)
                tl.store(peak + at + mine, tl.maximum(loss, above), mask=ok)
        tl.debug_barrier()


@triton.jit
def pair_loss(log_p, missed, one):
    """Return bce; not negative, and NaN where a logarithm is."""
    return tl.maximum(-tl.where(one, log_p, missed), 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def logistic(z, FAST: tl.constexpr):
    """softplus(z)."""
    tail = log1p_of(tl.exp(-tl.abs(z)), FAST)
    return tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL) + tail
