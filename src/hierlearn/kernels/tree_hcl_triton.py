# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of HCL with bce on a tree: the softmax link, and scope "ancestors".

An entry is bound by the greatest loss of its ancestors, the peak of its parent. In the sweep up an
entry that is bound owes its weight to that ancestor, and every class passes on what it is owed
unless its own loss is the greatest so far.
"""

import triton
import triton.language as tl

from hierlearn.kernels.entries_triton import inverse
from hierlearn.kernels.tree_triton import (
    HEAVY,
    LOG_ZERO,
    MINUS_INF,
    NOTHING,
    WRONG,
    column_at,
    is_one,
    log_outside,
    logistic,
    node_logs,
    pair_loss,
)


@triton.jit
def row_losses(
    x, y, m, logp, norms, beyond, row, cols, inside, own, floor, S, L, x_row, y_row, m_row,
    SOFTMAX: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Return loss, log p (or the logit), whether the target is 1, and the mask of columns of a row.

    The loss of an unknown entry is MINUS_INF.
    """
    long = tl.cast(row, tl.int64)
    one = is_one(tl.load(column_at(y, long * y_row, cols, VEC), mask=inside, other=0))
    if SOFTMAX:
        value = node_logs(x, logp, norms, row, cols, inside, own, S, x_row, VEC)
        missed = log_outside(value, beyond, row * L + floor, inside, FAST)
        loss = pair_loss(value, missed, one)
    else:
        value = tl.load(column_at(x, long * x_row, cols, VEC), mask=inside, other=0.0)
        value = value.to(tl.float32)
        loss = logistic(tl.where(one, -value, value), FAST)
    known = inside
    if MASKED:
        known = tl.load(column_at(m, long * m_row, cols, VEC), mask=inside, other=0) != 0
        loss = tl.where(known, loss, MINUS_INF)
    return loss, value, one, known


@triton.jit
def sum_tree(
    x, y, m, slot, parent, level, logp, peak, norms, beyond, partials, counts,
    N, C, S, L, height, x_row, y_row, m_row,
    SOFTMAX: tl.constexpr, BOUND: tl.constexpr, MASKED: tl.constexpr,
    FAST: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write a row of partial class sums (C,), and the counts of errors and of known entries."""
    cols = tl.program_id(0) * B + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
    above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
    floor = tl.load(column_at(level, 0, cols, VEC), mask=inside, other=0)
    part = tl.program_id(1)
    sums = tl.zeros([B], tl.float32)
    errors = tl.zeros([B], tl.int32)
    seen = tl.zeros([B], tl.int32)
    for row in tl.range(part * height, tl.minimum(part * height + height, N), num_stages=STAGES):
        loss, _value, _one, known = row_losses(
            x, y, m, logp, norms, beyond, row, cols, inside, own, floor,
            S, L, x_row, y_row, m_row, SOFTMAX, MASKED, FAST, VEC,
        )  # fmt: skip
        if BOUND:
            at = tl.cast(row, tl.int64) * S
            limit = tl.load(peak + at + above, mask=known, other=MINUS_INF)
            loss = tl.maximum(loss, limit, propagate_nan=tl.PropagateNan.ALL)
        sums += tl.where(known, loss, 0.0)
        errors += (known & (loss >= WRONG)).to(tl.int32)
        if MASKED:
            seen += known.to(tl.int32)
    tl.store(column_at(partials, part.to(tl.int64) * C, cols, VEC), sums, mask=inside)
    at = 2 * (part * tl.num_programs(0) + tl.program_id(0))
    tl.store(counts + at, tl.sum(errors, axis=0))
    tl.store(counts + at + 1, tl.sum(seen, axis=0))


@triton.jit
def answered(loss, limit, weight, owed):
    """Return the weight that an entry answers for, and the weight that it passes up."""
    keeps = loss >= limit
    leads = loss > limit
    own = tl.where(keeps, weight, 0.0) + tl.where(leads, owed, 0.0)
    return own, tl.where(keeps, 0.0, weight) + tl.where(leads, 0.0, owed)


@triton.jit
def sweep_groups(
    x, y, m, first, slot, logp, peak, norms, beyond, weights, stats, upstream, owed, sums, drops,
    N, S, L, T, scale, x_row, y_row, m_row, slot_0, slots, floor, tile_0, height,
    SOFTMAX: tl.constexpr, BOUND: tl.constexpr, MASKED: tl.constexpr, LEAVES: tl.constexpr,
    FAST: tl.constexpr, A: tl.constexpr, P: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Add up what the groups of one level owe to the class above them.

    For the softmax also, of each tile of groups, the sum of a and of b of heavy classes, that of
    b p / (1 - p) over light classes, and b of the heavy class of the level.
    """
    mine = slot_0 + tl.program_id(0) * P + tl.arange(0, P)
    ok = mine < slot_0 + slots
    begin = tl.load(first + mine, mask=ok, other=0)
    size = tl.load(first + mine + 1, mask=ok, other=0) - begin
    longest = tl.max(size, axis=0)
    factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    k = tl.expand_dims(tl.arange(0, K), 1 - A)
    begins = tl.expand_dims(begin, A)
    sizes = tl.expand_dims(size, A)
    start = tl.program_id(1) * height
    for row in range(start, tl.minimum(start + height, N)):
        long = tl.cast(row, tl.int64)
        at = long * S
        total = tl.zeros([P], tl.float32)
        all_ = tl.zeros([P], tl.float32)
        light = tl.zeros([P], tl.float32)
        limit = tl.full([P], MINUS_INF, tl.float32)
        if BOUND:
            limit = tl.load(peak + at + mine, mask=ok, other=MINUS_INF)
        for begin_k in range(0, longest, K):
            cols = begins + begin_k + k
            live = begin_k + k < sizes
            one = is_one(tl.load(y + long * y_row + cols, mask=live, other=0))
            own = cols * 0 - 1
            if not LEAVES:
                own = tl.load(slot + cols, mask=live, other=-1)
            value = tl.load(x + long * x_row + cols, mask=live, other=0.0).to(tl.float32)
            if SOFTMAX:
                high = tl.load(norms + 2 * row)
                log_sum = tl.load(norms + 2 * row + 1)
                value = (value - high) + (0.0 - log_sum)
                if not LEAVES:
                    known_p = tl.load(logp + at + own, mask=own >= 0, other=0.0)
                    value = tl.where(own >= 0, known_p, value)
                place = cols * 0 + (row * L + floor)
                out = log_outside(value, beyond, place, live, FAST)
                loss = pair_loss(value, out, one)
            else:
                loss = logistic(tl.where(one, -value, value), FAST)
            weight = tl.load(weights + cols, mask=live, other=0.0) * factor
            if MASKED:
                known = tl.load(m + long * m_row + cols, mask=live, other=0) != 0
                loss = tl.where(known, loss, MINUS_INF)
                weight = tl.where(known, weight, 0.0)
            debt = tl.zeros_like(weight)
            if BOUND and not LEAVES:
                debt = tl.load(owed + at + own, mask=own >= 0, other=0.0)
            kept, passed = answered(loss, tl.expand_dims(limit, A), weight, debt)
            total += tl.sum(passed, axis=A)
            if SOFTMAX:
                heavy = live & (value > HEAVY)
                # Where all terminals are below a class, p = 1 whatever the logits are.
                missed = tl.where(one | (out < NOTHING), 0.0, -kept)
                all_ += tl.sum(tl.where(one, -kept, tl.where(heavy, missed, 0.0)), axis=A)
                # Beyond a group p may be 1 or infinite, and 0 times that is no number.
                p = tl.exp(tl.where(live & ~heavy, value, LOG_ZERO))
                light += tl.sum(missed * p * inverse(1.0 - p, FAST), axis=A)
                tl.store(drops + place, missed, mask=heavy)
        if BOUND:
            tl.store(owed + at + mine, total, mask=ok)
        if SOFTMAX:
            tile = 2 * (long * T + tile_0 + tl.program_id(0))
            tl.store(sums + tile, tl.sum(all_, axis=0))
            tl.store(sums + tile + 1, tl.sum(light, axis=0))


@triton.jit
def write_sigmoid(
    x, y, m, weights, stats, upstream, slot, parent, peak, owed, gradient,
    N, C, S, scale, height, x_row, y_row, m_row,
    MASKED: tl.constexpr,
    FAST: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write the gradient of HCL with sigmoids and scope "ancestors"."""
    cols = tl.program_id(0) * B + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
    above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
    factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    weight = tl.load(column_at(weights, 0, cols, VEC), mask=inside, other=0.0) * factor
    start = tl.program_id(1) * height
    for row in tl.range(start, tl.minimum(start + height, N), num_stages=STAGES):
        loss, value, one, known = row_losses(
            x, y, m, x, x, x, row, cols, inside, own, own, S, 0, x_row, y_row, m_row,
            False, MASKED, FAST, VEC,
        )  # fmt: skip
        at = tl.cast(row, tl.int64) * S
        limit = tl.load(peak + at + above, mask=inside, other=MINUS_INF)
        debt = tl.load(owed + at + own, mask=own >= 0, other=0.0)
        kept, _passed = answered(loss, limit, tl.where(known, weight, 0.0), debt)
        slope = inverse(1.0 + tl.exp(tl.where(one, value, -value)), FAST)
        found = kept * tl.where(one, -slope, slope)
        tl.store(column_at(gradient, tl.cast(row, tl.int64) * C, cols, VEC), found, mask=inside)
