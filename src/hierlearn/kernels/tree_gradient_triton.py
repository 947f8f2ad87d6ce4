# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of the gradient of a softmax over the leaves of a tree, summed upward.

With a and b the gradients of log p and log(1 - p) of each class c, given or those of HCL,

    dx_t = sum over c above t of a_c q_t / p_c  +  sum over c not above t of b_c q_t / (1 - p_c)
           - q_t * sum over all c of (a_c + b_c)

where c above t includes t. The first sum goes down the tree (``share``). The second is that of all
light classes less those above t (``even``), and that of the heavy classes beyond the last one above
t, relative to the first of these (``drops``). No term is large where the result is small: over
light classes, b / (1 - p) less b is added up as b p / (1 - p).
"""

import triton
import triton.language as tl

from hierlearn.kernels.entries_triton import inverse
from hierlearn.kernels.tree_hcl_triton import answered
from hierlearn.kernels.tree_triton import (
    ABSENT,
    HEAVY,
    LOG_ZERO,
    MINUS_INF,
    NOTHING,
    column_at,
    is_one,
    log_outside,
    node_logs,
    pair_loss,
)


@triton.jit
def sum_given(
    x, slot, level, logp, norms, beyond, grad_p, grad_not_p, sums, drops,
    C, S, L, x_row,
    HAS_P: tl.constexpr, HAS_NOT_P: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """As ``sweep_groups``: the sums of a and b, and b of heavy classes, of one row."""
    row = tl.program_id(0)
    long = tl.cast(row, tl.int64)
    all_ = tl.zeros([B], tl.float32)
    light = tl.zeros([B], tl.float32)
    for start in range(0, C, B):
        cols = start + tl.arange(0, B)
        inside = cols // VEC < C // VEC
        if HAS_P:
            all_ += tl.load(column_at(grad_p, long * C, cols, VEC), mask=inside, other=0.0)
        if HAS_NOT_P:
            own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
            value = node_logs(x, logp, norms, row, cols, inside, own, S, x_row, VEC)
            given = tl.load(column_at(grad_not_p, long * C, cols, VEC), mask=inside, other=0.0)
            heavy = inside & (value > HEAVY)
            place = row * L + tl.load(column_at(level, 0, cols, VEC), mask=inside, other=0)
            # Where all terminals are below a class, p = 1 whatever the logits are.
            out = tl.load(beyond + place, mask=heavy, other=0.0)
            given = tl.where(out < NOTHING, 0.0, given)
            all_ += tl.where(heavy, given, 0.0)
            # Beyond the last column p may be 1 or infinite, and 0 times that is no number.
            p = tl.exp(tl.where(inside & ~heavy, value, LOG_ZERO))
            light += given * p / (1.0 - p)
            tl.store(drops + place, given, mask=heavy)
    tl.store(sums + 2 * long, tl.sum(all_, axis=0))
    tl.store(sums + 2 * long + 1, tl.sum(light, axis=0))


@triton.jit
def slot_gradients(
    y, m, weights, stats, upstream, grad_p, grad_not_p,
    owner, parent, slot_bounds, logp, peak, beyond, owed, sums, drops,
    share, even, tilted, shift, following,
    C, S, L, T, scale, y_row, m_row,
    GIVEN: tl.constexpr, HAS_P: tl.constexpr, HAS_NOT_P: tl.constexpr,
    BOUND: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """From the top down, one row per program: what every slot hands to the terminals below it.

    share: sum over the classes c above of a_c p(slot) / p(c). even: the light classes that are not
    above, less the sum of all a + b. tilted, shift: even together with the heavy classes that are
    not above, times exp(-shift). following: the level of the first of these.
    """
    row = tl.program_id(0)
    long = tl.cast(row, tl.int64)
    at = long * S
    tile = tl.arange(0, 128)
    all_ = tl.zeros([128], tl.float32)
    light = tl.zeros([128], tl.float32)
    for start in range(0, T, 128):
        some = start + tile < T
        all_ += tl.load(sums + 2 * (long * T + start + tile), mask=some, other=0.0)
        light += tl.load(sums + 2 * (long * T + start + tile) + 1, mask=some, other=0.0)
    base = tl.sum(light, axis=0) - tl.sum(all_, axis=0)
    carried = 0.0  # relative to the heavy class of the level below
    last = 0.0
    if HAS_NOT_P:
        for step in range(L):
            place = row * L + (L - 1 - step)
            log_out = tl.load(beyond + place)
            there = log_out != ABSENT
            lost = tl.load(drops + place, mask=there, other=0.0)
            carried = tl.where(there, lost + carried * tl.exp(tl.minimum(log_out - last, 0.0)), 0.0)
            last = tl.where(there, log_out, 0.0)
            tl.store(drops + place, carried)
    bent = (carried != 0.0) | (last != 0.0)
    tl.store(share + at, 0.0)
    tl.store(even + at, base)
    tl.store(tilted + at, tl.where(bent, base * tl.exp(last) + carried, base))
    tl.store(shift + at, tl.where(bent, -last, 0.0))
    tl.store(following + at, 0)
    factor = 0.0
    if not GIVEN:
        factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    tl.debug_barrier()
    for level in range(1, L):
        end = tl.load(slot_bounds + level + 1)
        for start in range(tl.load(slot_bounds + level), end, B):
            mine = start + tl.arange(0, B)
            ok = mine < end
            node = tl.load(owner + mine, mask=ok, other=0)
            above = tl.load(parent + node, mask=ok, other=0)
            log_p = tl.load(logp + at + mine, mask=ok, other=0.0)
            if GIVEN:
                inside = tl.zeros([B], tl.float32)
                outside = tl.zeros([B], tl.float32)
                if HAS_P:
                    inside = tl.load(grad_p + long * C + node, mask=ok, other=0.0)
                if HAS_NOT_P:
                    outside = tl.load(grad_not_p + long * C + node, mask=ok, other=0.0)
            else:
                one = is_one(tl.load(y + long * y_row + node, mask=ok, other=0))
                place = tl.zeros([B], tl.int32) + (row * L + level - 1)
                loss = pair_loss(log_p, log_outside(log_p, beyond, place, ok, FAST), one)
                weight = tl.load(weights + node, mask=ok, other=0.0) * factor
                if MASKED:
                    known = tl.load(m + long * m_row + node, mask=ok, other=0) != 0
                    loss = tl.where(known, loss, MINUS_INF)
                    weight = tl.where(known, weight, 0.0)
                kept = weight
                if BOUND:
                    limit = tl.load(peak + at + above, mask=ok, other=MINUS_INF)
                    debt = tl.load(owed + at + mine, mask=ok, other=0.0)
                    kept, _passed = answered(loss, limit, weight, debt)
                inside = tl.where(one, -kept, 0.0)
                outside = tl.where(one, 0.0, -kept)
            heavy = log_p > HEAVY
            part = tl.exp(log_p - tl.load(logp + at + above, mask=ok, other=0.0))
            part = inside + part * tl.load(share + at + above, mask=ok, other=0.0)
            rest = tl.load(even + at + above, mask=ok, other=0.0)
            rest -= tl.where(heavy, 0.0, outside / (1.0 - tl.exp(tl.where(heavy, -1.0, log_p))))
            next_ = tl.load(following + at + above, mask=ok, other=0)
            next_ = tl.where(heavy, level, next_)
            log_out = tl.full([B], ABSENT, tl.float32)
            if HAS_NOT_P:
                log_out = tl.load(beyond + row * L + next_, mask=ok & (next_ < L), other=ABSENT)
            lost = log_out != ABSENT
            fall = tl.load(drops + row * L + next_, mask=ok & lost, other=0.0)
            log_out = tl.where(lost, log_out, 0.0)
            tl.store(share + at + mine, part, mask=ok)
            tl.store(even + at + mine, rest, mask=ok)
            tl.store(tilted + at + mine, rest * tl.exp(log_out) + fall, mask=ok)
            tl.store(shift + at + mine, -log_out, mask=ok)
            tl.store(following + at + mine, next_, mask=ok)
        tl.debug_barrier()


@triton.jit
def write_softmax(
    x, y, m, weights, stats, upstream, grad_p, grad_not_p,
    slot, parent, level, terminal, logp, peak, norms, beyond,
    share, even, tilted, shift, gradient,
    N, C, S, L, scale, height, x_row, y_row, m_row,
    GIVEN: tl.constexpr, HAS_P: tl.constexpr, HAS_NOT_P: tl.constexpr,
    BOUND: tl.constexpr, MASKED: tl.constexpr,
    FAST: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the logits of every class; 0 for those that are not terminal."""
    cols = tl.program_id(0) * B + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
    leaf = own < 0
    above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
    source = tl.where(leaf, above, own)
    ends = tl.load(column_at(terminal, 0, cols, VEC), mask=inside, other=0) != 0
    floor = tl.load(column_at(level, 0, cols, VEC), mask=inside, other=0)
    weight = tl.zeros([B], tl.float32)
    if not GIVEN:
        factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
        weight = tl.load(column_at(weights, 0, cols, VEC), mask=inside, other=0.0) * factor
        weight = tl.where(leaf, weight, 0.0)
    start = tl.program_id(1) * height
    for row in tl.range(start, tl.minimum(start + height, N), num_stages=STAGES):
        long = tl.cast(row, tl.int64)
        high = tl.load(norms + 2 * row)
        total = tl.load(norms + 2 * row + 1)
        value = tl.load(column_at(x, long * x_row, cols, VEC), mask=inside, other=0.0)
        log_q = (value.to(tl.float32) - high) + (0.0 - total)
        heavy = leaf & (log_q > HEAVY)
        at = long * S
        hit = tl.zeros([B], tl.float32)
        miss = tl.zeros([B], tl.float32)
        if GIVEN:
            if HAS_P:
                hit = tl.load(column_at(grad_p, long * C, cols, VEC), mask=inside, other=0.0)
                hit = tl.where(leaf, hit, 0.0)
            if HAS_NOT_P:
                miss = tl.load(column_at(grad_not_p, long * C, cols, VEC), mask=inside, other=0.0)
                miss = tl.where(leaf, miss, 0.0)
        else:
            one = is_one(tl.load(column_at(y, long * y_row, cols, VEC), mask=inside, other=0))
            kept = weight
            if MASKED:
                known = tl.load(column_at(m, long * m_row, cols, VEC), mask=inside, other=0)
                kept = tl.where(known != 0, kept, 0.0)
            if BOUND:
                there = ends & leaf
                missed = log_outside(log_q, beyond, row * L + floor, there, FAST)
                limit = tl.load(peak + at + above, mask=there, other=MINUS_INF)
                kept = tl.where(pair_loss(log_q, missed, one) >= limit, kept, 0.0)
            hit = tl.where(one, -kept, 0.0)
            miss = tl.where(one, 0.0, -kept)
        q = tl.exp(log_q)
        part = tl.exp(log_q - tl.load(logp + at + source, mask=ends, other=0.0))
        found = hit + tl.load(share + at + source, mask=ends, other=0.0) * part
        bent = tl.load(tilted + at + source, mask=ends, other=0.0)
        pushed = tl.exp(log_q + tl.load(shift + at + source, mask=ends, other=0.0)) * bent
        flat = q * tl.load(even + at + source, mask=ends & heavy, other=0.0)
        found += tl.where(heavy, flat, pushed)
        if HAS_NOT_P:
            found -= tl.where(heavy, 0.0, miss * q * inverse(1.0 - tl.minimum(q, 0.7), FAST))
        out = column_at(gradient, long * C, cols, VEC)
        tl.store(out, tl.where(ends, found, 0.0), mask=inside)
