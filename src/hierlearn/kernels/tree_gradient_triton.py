# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of the gradient of a softmax over the leaves of a tree, summed upward.

With a and b the gradients of log p and log(1 - p) of each class c, given or those of HCL,

    dx_t = sum over c above t of a_c q_t / p_c  +  sum over c not above t of b_c q_t / (1 - p_c)
           - q_t * sum over all c of (a_c + b_c)

where c above t includes t. The first sum goes down the tree (``share``). The second is that of all
light classes less those above t (``even``), and that of the heavy classes beyond the last one above
t, relative to the first of these (``drops``). No term is large where the result is small.
"""

import triton
import triton.language as tl

from hierlearn.kernels.tree_hcl_triton import answered
from hierlearn.kernels.tree_triton import (
    ABSENT,
    HEAVY,
    MINUS_INF,
    NOTHING,
    is_one,
    log_outside,
    node_logs,
    pair_loss,
)


@triton.jit
def sum_given(
    x, slot, level, logp, norms, beyond, grad_p, grad_not_p, sums, drops,
    C, S, L, x_row,
    HAS_P: tl.constexpr, HAS_NOT_P: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The same sums of one row for given gradients of log p and log(1 - p)."""
    row = tl.program_id(0)
    long = tl.cast(row, tl.int64)
    rows = row + tl.arange(0, 1)
    here = rows >= 0
    all_ = tl.zeros([1, B], tl.float32)
    light = tl.zeros([1, B], tl.float32)
    for start in range(0, C, B):
        cols = start + tl.arange(0, B)
        inside = cols < C
        there = inside[None, :]
        at = long * C + cols[None, :]
        if HAS_P:
            all_ += tl.load(grad_p + at, mask=there, other=0.0)
        if HAS_NOT_P:
            value, _inner = node_logs(x, slot, logp, norms, rows, here, cols, inside, S, x_row)
            given = tl.load(grad_not_p + at, mask=there, other=0.0)
            heavy = there & (value > HEAVY)
            place = row * L + tl.load(level + cols, mask=inside, other=0)
            # Where all terminals are below a class, p = 1 whatever the logits are.
            out = tl.load(beyond + place[None, :], mask=heavy, other=0.0)
            given = tl.where(out < NOTHING, 0.0, given)
            all_ += given
            light += tl.where(heavy, 0.0, given / (1.0 - tl.exp(tl.where(heavy, -1.0, value))))
            tl.store(drops + place[None, :], given, mask=heavy)
    tl.store(sums + 2 * long, tl.sum(tl.sum(all_, axis=1), axis=0))
    tl.store(sums + 2 * long + 1, tl.sum(tl.sum(light, axis=1), axis=0))


@triton.jit
def slot_gradients(
    y, m, weights, stats, upstream, grad_p, grad_not_p,
    owner, parent, slot_bounds, logp, peak, beyond, owed, sums, drops,
    share, even, tilted, shift, following,
    C, S, L, T, scale, y_row, m_row,
    GIVEN: tl.constexpr, HAS_P: tl.constexpr, HAS_NOT_P: tl.constexpr,
    BOUND: tl.constexpr, MASKED: tl.constexpr, B: tl.constexpr,
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
                loss = pair_loss(log_p, log_outside(log_p, beyond, place, ok), one)
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
    BOUND: tl.constexpr, MASKED: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the logits of every class; 0 for those that are not terminal."""
    cols = tl.program_id(0) * B + tl.arange(0, B)
    inside = cols < C
    own = tl.load(slot + cols, mask=inside, other=-1)
    leaf = (own < 0)[None, :]
    above = tl.load(parent + cols, mask=inside, other=0)
    source = tl.where(own < 0, above, own)
    ends = inside & (tl.load(terminal + cols, mask=inside, other=0) != 0)
    floor = tl.load(level + cols, mask=inside, other=0)
    weight = tl.zeros([B], tl.float32)
    if not GIVEN:
        factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
        weight = tl.load(weights + cols, mask=inside, other=0.0) * factor
    start = tl.program_id(1) * height
    for row in range(start, tl.minimum(start + height, N), R):
        rows = row + tl.arange(0, R)
        here = rows < N
        there = here[:, None] & ends[None, :]
        long = rows.to(tl.int64)
        high = tl.load(norms + 2 * rows, mask=here, other=0.0)
        total = tl.load(norms + 2 * rows + 1, mask=here, other=0.0)
        value = tl.load(x + (long * x_row)[:, None] + cols[None, :], mask=there, other=0.0)
        log_q = (value.to(tl.float32) - high[:, None]) + (0.0 - total[:, None])
        heavy = leaf & (log_q > HEAVY)
        at = (long * S)[:, None] + source[None, :]
        if GIVEN:
            entry = (long * C)[:, None] + cols[None, :]
            hit = tl.zeros([R, B], tl.float32)
            miss = tl.zeros([R, B], tl.float32)
            if HAS_P:
                hit = tl.load(grad_p + entry, mask=there & leaf, other=0.0)
            if HAS_NOT_P:
                miss = tl.load(grad_not_p + entry, mask=there & leaf, other=0.0)
        else:
            place = (long * y_row)[:, None] + cols[None, :]
            one = is_one(tl.load(y + place, mask=there, other=0))
            kept = tl.broadcast_to(weight[None, :], [R, B])
            if MASKED:
                known = tl.load(m + (long * m_row)[:, None] + cols[None, :], mask=there, other=0)
                kept = tl.where(known != 0, kept, 0.0)
            if BOUND:
                spot = rows[:, None] * L + floor[None, :]
                loss = pair_loss(log_q, log_outside(log_q, beyond, spot, there & leaf), one)
                limit = tl.load(
                    peak + (long * S)[:, None] + above[None, :], mask=there & leaf, other=MINUS_INF
                )
                kept = tl.where(loss >= limit, kept, 0.0)
            kept = tl.where(leaf, kept, 0.0)
            hit = tl.where(one, -kept, 0.0)
            miss = tl.where(one, 0.0, -kept)
        q = tl.exp(log_q)
        found = hit + tl.load(share + at, mask=there, other=0.0) * tl.exp(
            log_q - tl.load(logp + at, mask=there, other=0.0)
        )
        bent = tl.load(tilted + at, mask=there, other=0.0)
        pushed = tl.exp(log_q + tl.load(shift + at, mask=there, other=0.0)) * bent
        flat = q * tl.load(even + at, mask=there & heavy, other=0.0)
        found += tl.where(heavy, flat, pushed)
        if HAS_NOT_P:
            found -= tl.where(heavy, 0.0, miss * q / (1.0 - tl.minimum(q, 0.7)))
        out = (long * C)[:, None] + cols[None, :]
        tl.store(gradient + out, tl.where(there, found, 0.0), mask=here[:, None] & inside[None, :])
