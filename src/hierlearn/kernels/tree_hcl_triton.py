# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of HCL with bce on a tree: the softmax link, and scope "ancestors".

An entry is bound by the greatest loss of its ancestors, the peak of its parent. In the sweep up an
entry that is bound owes its weight to that ancestor, and every class passes on what it is owed
unless its own loss is the greatest so far. For sigmoids z = (1 - 2y) x is compared instead of the
loss, which grows with it. What the heavy leaf of a row adds to the gradient of all logits is added
by ``slot_gradients``.

**The gradient of the softmax**, summed upward. With a and b the gradients of log p and log(1 - p)
of each class c, given or those of HCL,

    dx_t = sum over c above t of a_c q_t / p_c  +  sum over c not above t of b_c q_t / (1 - p_c)
           - q_t * sum over all c of (a_c + b_c)

where c above t includes t. The first sum goes down the tree (``share``). The second is that of all
light classes less those above t (``even``), and that of the heavy classes beyond the last one above
t, relative to the first of these (``carried``). No term is large where the result is small: over
light classes, b / (1 - p) less b is added up as b p / (1 - p).

All that a slot hands to the terminals below it is one number (``handed``), times q_t relative to a
reference (``reference``): p of the slot, or 1 - p of the heavy class below it. Only the leaf that
is itself heavy, at most one per row, gets another (``tail_slope``).
"""

import triton
import triton.language as tl

from hierlearn.kernels.entries_triton import (
    LOWEST,
    exp,
    exp_minus,
    inverse,
    is_wrong,
    log1p,
    product_minus_1,
    signed,
)
from hierlearn.kernels.tree_triton import (
    ABSENT,
    HEAVY,
    LOG_ZERO,
    MINUS_INF,
    NOTHING,
    WRONG,
    add_within,
    column_at,
    is_one,
    log_outside,
    node_logs,
    pair_loss,
    window_columns,
)


@triton.jit
def row_losses(
    x, y, m, logp, norms, beyond, row, cols, inside, own, floor, S, L, x_row, y_row, m_row,
    INNER: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Return of columns of a row: loss, log p, log(1 - p), whether the target is 1, the mask.

    The loss of an unknown entry is MINUS_INF.
    """
    long = tl.cast(row, tl.int64)
    one = is_one(tl.load(column_at(y, long * y_row, cols, VEC), mask=inside, other=0))
    value = node_logs(x, logp, norms, row, cols, inside, own, S, x_row, INNER, VEC)
    missed = log_outside(value, beyond, row * L + floor, inside, FAST)
    loss = pair_loss(value, missed, one)
    known = inside
    if MASKED:
        known = tl.load(column_at(m, long * m_row, cols, VEC), mask=inside, other=0) != 0
        loss = tl.where(known, loss, MINUS_INF)
    return loss, value, missed, one, known


@triton.jit
def sum_softmax(
    x, y, m, tiles, slot, parent, level, logp, peak, norms, beyond, partials, counts,
    N, C, S, L, T, height, x_row, y_row, m_row,
    BOUND: tl.constexpr, INNER: tl.constexpr, MASKED: tl.constexpr,
    FAST: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write a row of partial class sums (C,), and the counts of errors and of known entries."""
    tile = tl.load(tiles + tl.program_id(0))
    cols = tile * B + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
    above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
    floor = tl.load(column_at(level, 0, cols, VEC), mask=inside, other=0)
    part = tl.program_id(1)
    sums = tl.zeros([B], tl.float32)
    errors = tl.zeros([B], tl.int32)
    seen = tl.zeros([B], tl.int32)
    stop = tl.minimum(part * height + height, N)
    for row in tl.range(part * height, stop, num_stages=STAGES):
        loss, _value, _missed, _one, known = row_losses(
            x, y, m, logp, norms, beyond, row, cols, inside, own, floor,
            S, L, x_row, y_row, m_row, INNER, MASKED, FAST, VEC,
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
    at = 2 * (part * T + tile)
    tl.store(counts + at, tl.sum(errors, axis=0))
    tl.store(counts + at + 1, tl.sum(seen, axis=0))


@triton.jit
def load_row(
    x, y, m, row, cols, inside, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Return z = (1 - 2y) x of columns of a row, 1 - 2y and the mask; z is MINUS_INF if masked."""
    long = tl.cast(row, tl.int64)
    value = tl.load(column_at(x, long * x_row, cols, VEC), mask=inside, other=MINUS_INF)
    label = tl.load(column_at(y, long * y_row, cols, VEC), mask=inside, other=0)
    z, sign = signed(value, label, FAST)
    known = inside
    if MASKED:
        known = tl.load(column_at(m, long * m_row, cols, VEC), mask=inside, other=0) != 0
        z = tl.where(known, z, MINUS_INF)
    return z, sign, known


@triton.jit
def sum_sigmoid(
    x, y, m, parent, peak, partials, counts,
    N, C, S, height, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr,
    B: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """``sum_softmax`` for sigmoids and scope "ancestors".

    With b the greater of z and its limit, softplus(b) = max(b, 0) + log(1 + exp(-|b|)), and the
    logarithms of several rows are one logarithm of a product.
    """
    cols = tl.program_id(0) * B + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
    part = tl.program_id(1)
    losses = tl.zeros([B], tl.float32)
    errors = tl.zeros([B], tl.float32)  # integers, exact up to 2^24 rows
    seen = tl.zeros([B], tl.int32)
    end_row = tl.minimum(part * height + height, N)
    for start in range(part * height, end_row, 64):
        grown = tl.zeros([B], tl.float32)  # below 2^64
        for row in tl.range(start, tl.minimum(start + 64, end_row), num_stages=STAGES):
            z, _sign, known = load_row(
                x, y, m, row, cols, inside, x_row, y_row, m_row, MASKED, FAST, VEC
            )
            limit = tl.load(peak + tl.cast(row, tl.int64) * S + above, mask=inside, other=LOWEST)
            limit = tl.maximum(limit, LOWEST)
            bound = tl.maximum(z, limit, propagate_nan=tl.PropagateNan.ALL)
            if MASKED:
                bound = tl.where(known, bound, LOWEST)
                seen += known.to(tl.int32)
            losses += tl.maximum(bound, 0.0, propagate_nan=tl.PropagateNan.ALL)
            grown = product_minus_1(grown, exp_minus(tl.abs(bound), FAST))
            errors += is_wrong(bound, FAST)
        losses += log1p(grown)
    tl.store(column_at(partials, part.to(tl.int64) * C, cols, VEC), losses, mask=inside)
    at = 2 * (part * tl.num_programs(0) + tl.program_id(0))
    tl.store(counts + at, tl.sum(tl.where(inside, errors, 0.0).to(tl.int32), axis=0))
    tl.store(counts + at + 1, tl.sum(tl.where(inside, seen, 0), axis=0))


@triton.jit
def answered(loss, limit, weight, owed):
    """Return the weight that an entry answers for, and the weight that it passes up."""
    keeps = loss >= limit
    leads = loss > limit
    own = tl.where(keeps, weight, 0.0) + tl.where(leads, owed, 0.0)
    return own, tl.where(keeps, 0.0, weight) + tl.where(leads, 0.0, owed)


@triton.jit
def pushed_by(value, out, one, live, leaf, kept, FAST: tl.constexpr):
    """Return what the gradients a and b of entries add to all logits, and b of heavy entries.

    b p / (1 - p) of light classes, less a, and less b of heavy ones; nothing for the heavy leaf.
    """
    heavy = live & (value > HEAVY)
    # Where all terminals are below a class, p = 1 whatever the logits are.
    missed = tl.where(one | (out < NOTHING), 0.0, -kept)
    # Beyond a window p may be 1 or infinite, and 0 times that is no number.
    p = exp(tl.where(live & ~heavy, value, LOG_ZERO), FAST)
    light = missed * p * inverse(1.0 - p, FAST)
    found = light - tl.where(one, -kept, tl.where(heavy, missed, 0.0))
    return tl.where(live & ~(heavy & leaf), found, 0.0), missed, heavy & ~leaf


@triton.jit
def leaf_answers(
    x, y, m, norms, least, tail_keeps, row, cols, inside, above, weight, S, x_row, y_row, m_row,
    BOUND: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Return of leaves of a row of a softmax: log p, p, whether the target is 1 and p is heavy.

    Also the weight of each entry, and the part of it that is not bound: with a target of 0 those
    whose p is not less than ``least``, with 1 those whose 1 - p is not.
    """
    long = tl.cast(row, tl.int64)
    one = is_one(tl.load(column_at(y, long * y_row, cols, VEC), mask=inside, other=0))
    high = tl.load(norms + 2 * row)
    total = tl.load(norms + 2 * row + 1)
    value = tl.load(column_at(x, long * x_row, cols, VEC), mask=inside, other=0.0).to(tl.float32)
    value = (value - high) + (0.0 - total)
    q = exp(value, FAST)
    heavy = value > HEAVY
    weighed = weight
    if MASKED:
        known = tl.load(column_at(m, long * m_row, cols, VEC), mask=inside, other=0) != 0
        weighed = tl.where(known, weighed, 0.0)
    kept = weighed
    if BOUND:
        limit = tl.load(least + long * S + above, mask=inside, other=0.0)
        kept = tl.where(tl.where(one, 1.0 - q, q) >= limit, weighed, 0.0)
        kept = tl.where(heavy, weighed * tl.load(tail_keeps + row), kept)
    return value, q, one, heavy, weighed, kept


@triton.jit
def sweep_windows(
    x, y, m, windows, group, slot, parent, logp, peak, least, norms, beyond, tail_keeps,
    weights, stats, upstream, owed, sums, drops,
    N, C, S, L, T, scale, window_0, floor, height, x_row, y_row, m_row,
    SOFTMAX: tl.constexpr, BOUND: tl.constexpr, MASKED: tl.constexpr, PIECES: tl.constexpr,
    INNER: tl.constexpr, FAST: tl.constexpr, K: tl.constexpr, VEC: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Add up what the groups of one stage owe to the class above them.

    For the softmax also, of each window, what its classes add to all logits, and b of the heavy
    class of the level.
    """
    w = window_0 + tl.program_id(0)
    cols, inside, end = window_columns(windows, w, K, VEC)
    mine = tl.load(group + cols, mask=inside, other=-1)
    following = tl.load(group + cols + 1, mask=inside & (cols + 1 < end), other=-1)
    last = inside & (mine != following)
    own = tl.full([K], -1, tl.int32)
    above = mine
    weight = tl.zeros([K], tl.float32)
    if not PIECES:
        factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
        weight = tl.load(weights + cols, mask=inside, other=0.0) * factor
        above = tl.load(parent + cols, mask=inside, other=0)
        if INNER:
            own = tl.load(slot + cols, mask=inside, other=-1)
    levels = cols * 0 + floor
    readable = cols // VEC < C // VEC
    start = tl.program_id(1) * height
    for row in tl.range(start, tl.minimum(start + height, N), num_stages=STAGES):
        long = tl.cast(row, tl.int64)
        at = long * S
        found = tl.zeros([K], tl.float32)
        if PIECES:
            passed = tl.load(owed + at + cols, mask=inside, other=0.0)
        elif SOFTMAX and not INNER:
            _value, q, one, heavy, weighed, kept = leaf_answers(
                x, y, m, norms, least, tail_keeps, row, cols, readable, above, weight, S,
                x_row, y_row, m_row, BOUND, MASKED, FAST, VEC,
            )  # fmt: skip
            passed = weighed - kept
            ratio = q * inverse(1.0 - tl.minimum(q, 0.7), FAST)
            found = tl.where(heavy, 0.0, kept * tl.where(one, 1.0, -ratio))  # no weight outside
        else:
            if SOFTMAX:
                loss, value, out, one, known = row_losses(
                    x, y, m, logp, norms, beyond, row, cols, readable, own, levels,
                    S, L, x_row, y_row, m_row, INNER, MASKED, FAST, VEC,
                )  # fmt: skip
            else:
                loss, _sign, known = load_row(
                    x, y, m, row, cols, readable, x_row, y_row, m_row, MASKED, FAST, VEC
                )
            limit = tl.full([K], MINUS_INF, tl.float32)
            debt = tl.zeros([K], tl.float32)
            if BOUND:
                limit = tl.load(peak + at + above, mask=inside, other=MINUS_INF)
                if INNER:
                    debt = tl.load(owed + at + own, mask=own >= 0, other=0.0)
            weighed = weight
            if MASKED:
                weighed = tl.where(known, weight, 0.0)
            kept, passed = answered(loss, limit, weighed, debt)
            if SOFTMAX:
                found, missed, heavy = pushed_by(value, out, one, inside, own < 0, kept, FAST)
                tl.store(drops + row * L + levels, missed, mask=heavy)
        if SOFTMAX:
            tl.store(sums + long * T + w, tl.sum(found, axis=0))
        if BOUND:
            total, _ = tl.associative_scan((passed, mine), 0, add_within)
            tl.store(owed + at + mine, total, mask=last)


@triton.jit
def write_sigmoid(
    x, y, m, weights, stats, upstream, slot, parent, peak, owed, gradient,
    C, S, scale, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr,
    B: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write the gradient of HCL with sigmoids and scope "ancestors", of one row."""
    row = tl.program_id(0)
    factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    at = tl.cast(row, tl.int64) * S
    for start in tl.range(0, C, B, num_stages=STAGES):
        cols = start + tl.arange(0, B)
        inside = cols // VEC < C // VEC
        own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
        above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
        weight = tl.load(column_at(weights, 0, cols, VEC), mask=inside, other=0.0) * factor
        z, sign, known = load_row(
            x, y, m, row, cols, inside, x_row, y_row, m_row, MASKED, FAST, VEC
        )
        limit = tl.load(peak + at + above, mask=inside, other=MINUS_INF)
        kept = tl.where(z >= limit, weight, 0.0)
        if MASKED:
            kept = tl.where(known, kept, 0.0)
        kept += tl.load(owed + at + own, mask=(own >= 0) & (z > limit), other=0.0)
        found = kept * sign * inverse(1.0 + exp_minus(z, FAST), FAST)
        tl.store(column_at(gradient, tl.cast(row, tl.int64) * C, cols, VEC), found, mask=inside)


@triton.jit
def sum_given(
    x, slot, level, logp, norms, beyond, grad_p, grad_not_p, sums, drops,
    C, S, L, x_row,
    HAS_P: tl.constexpr, HAS_NOT_P: tl.constexpr, FAST: tl.constexpr,
    B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """As ``sweep_windows``: what all classes add to all logits, and b of heavy ones, of one row."""
    row = tl.program_id(0)
    at = tl.cast(row, tl.int64) * C
    pushed = tl.zeros([B], tl.float32)
    for start in range(0, C, B):
        cols = start + tl.arange(0, B)
        inside = cols // VEC < C // VEC
        if HAS_P:
            pushed -= tl.load(column_at(grad_p, at, cols, VEC), mask=inside, other=0.0)
        if HAS_NOT_P:
            own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
            value = node_logs(x, logp, norms, row, cols, inside, own, S, x_row, True, VEC)
            given = tl.load(column_at(grad_not_p, at, cols, VEC), mask=inside, other=0.0)
            heavy = inside & (value > HEAVY)
            place = row * L + tl.load(column_at(level, 0, cols, VEC), mask=inside, other=0)
            # Where all terminals are below a class, p = 1 whatever the logits are.
            out = tl.load(beyond + place, mask=heavy, other=0.0)
            given = tl.where(out < NOTHING, 0.0, given)
            # Beyond the last column p may be 1 or infinite, and 0 times that is no number.
            p = exp(tl.where(inside & ~heavy, value, LOG_ZERO), FAST)
            pushed += given * tl.where(heavy, -1.0, p * inverse(1.0 - p, FAST))
            tl.store(drops + place, given, mask=heavy)
    tl.store(sums + row, tl.sum(pushed, axis=0))


@triton.jit
def tail_push(
    y, m, weights, level_of, beyond, drops, tail_keeps, leaf, factor, row, L, y_row, m_row,
    BOUND: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Return what the heavy leaf of a row adds to all logits, if there is one; writes its drop."""
    long = tl.cast(row, tl.int64)
    there = leaf >= 0
    kept = tl.load(weights + leaf, mask=there, other=0.0) * factor
    if MASKED:
        kept *= tl.load(m + long * m_row + leaf, mask=there, other=0).to(tl.float32)
    if BOUND:
        kept *= tl.load(tail_keeps + row, mask=there, other=0.0)
    place = row * L + tl.load(level_of + leaf, mask=there, other=0)
    one = is_one(tl.load(y + long * y_row + leaf, mask=there, other=0))
    # Where all terminals are below a class, p = 1 whatever the logits are.
    gone = tl.load(beyond + place, mask=there, other=0.0) < NOTHING
    missed = tl.where(one | gone, 0.0, -kept)
    tl.store(drops + place, missed, mask=there)
    return tl.where(one, kept, -missed)


@triton.jit
def slot_gradients(
    y, m, weights, stats, upstream, grad_p, grad_not_p,
    owner, parent, level_of, slot_bounds,
    logp, peak, beyond, owed, sums, drops, carried, tails, tail_keeps,
    share, even, reference, handed, following, tail_slope,
    C, S, L, T, scale, y_row, m_row,
    GIVEN: tl.constexpr, HAS_P: tl.constexpr, HAS_NOT_P: tl.constexpr,
    BOUND: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Down the inner classes, one row per program: what every slot hands to terminals.

    share: sum over the classes c above of a_c p(slot) / p(c). even: the light classes that are not
    above, less the sum of all a + b. following: the level of the first heavy class not above.
    """
    row = tl.program_id(0)
    long = tl.cast(row, tl.int64)
    at = long * S
    factor = 0.0
    if not GIVEN:
        factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    tile = tl.arange(0, 128)
    parts = tl.zeros([128], tl.float32)
    for start in range(0, T, 128):
        parts += tl.load(sums + long * T + start + tile, mask=start + tile < T, other=0.0)
    base = tl.sum(parts, axis=0)
    leaf = tl.load(tails + 2 * row)
    is_tail = leaf >= 0
    tail = tl.load(tails + 2 * row + 1, mask=is_tail, other=0)
    if not GIVEN:
        base += tail_push(
            y, m, weights, level_of, beyond, drops, tail_keeps, leaf, factor, row, L, y_row, m_row,
            BOUND, MASKED,
        )  # fmt: skip
        tl.debug_barrier()
    behind = 0.0  # relative to the heavy class of the level below
    last = 0.0
    if HAS_NOT_P:
        for step in range(L):
            place = row * L + (L - 1 - step)
            log_out = tl.load(beyond + place)
            there = log_out != ABSENT
            lost = tl.load(drops + place, mask=there, other=0.0)
            behind = tl.where(there, lost + behind * tl.exp(tl.minimum(log_out - last, 0.0)), 0.0)
            last = tl.where(there, log_out, 0.0)
            tl.store(carried + place, behind)
    bent = tl.load(beyond + row * L + tl.zeros([B], tl.int32)) != ABSENT  # any heavy class
    tl.store(share + at, 0.0)
    tl.store(even + at, base)
    tl.store(reference + at, last)
    tl.store(handed + at, base * tl.exp(last) + behind)
    tl.store(following + at, 0)
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
                kept = tl.load(weights + node, mask=ok, other=0.0) * factor
                if MASKED:
                    known = tl.load(m + long * m_row + node, mask=ok, other=0) != 0
                    kept = tl.where(known, kept, 0.0)
                if BOUND:
                    place = tl.zeros([B], tl.int32) + (row * L + level - 1)
                    loss = pair_loss(log_p, log_outside(log_p, beyond, place, ok, FAST), one)
                    if MASKED:
                        loss = tl.where(known, loss, MINUS_INF)
                    limit = tl.load(peak + at + above, mask=ok, other=MINUS_INF)
                    debt = tl.load(owed + at + mine, mask=ok, other=0.0)
                    kept, _passed = answered(loss, limit, kept, debt)
                inside = tl.where(one, -kept, 0.0)
                outside = tl.where(one, 0.0, -kept)
            heavy = log_p > HEAVY
            part = tl.exp(log_p - tl.load(logp + at + above, mask=ok, other=0.0))
            part = inside + part * tl.load(share + at + above, mask=ok, other=0.0)
            p = tl.exp(log_p)
            rest = tl.load(even + at + above, mask=ok, other=0.0)
            rest -= tl.where(heavy, 0.0, outside / (1.0 - tl.where(heavy, 0.0, p)))
            next_ = tl.load(following + at + above, mask=ok & bent, other=0)
            next_ = tl.where(heavy, level, next_)
            log_out = tl.full([B], ABSENT, tl.float32)
            fall = tl.zeros([B], tl.float32)
            if HAS_NOT_P:
                more = ok & bent & (next_ < L)
                log_out = tl.load(beyond + row * L + next_, mask=more, other=ABSENT)
                fall = tl.load(carried + row * L + next_, mask=more, other=0.0)
            lost = log_out != ABSENT
            # A terminal below a heavy slot is below its heavy class or has less than log_out.
            ref = tl.where(lost & heavy, log_out, log_p)
            found = part * tl.exp(ref - log_p) + rest * tl.exp(ref)
            found += tl.where(lost, fall * tl.exp(tl.minimum(ref - log_out, 0.0)), 0.0)
            tl.store(share + at + mine, part, mask=ok)
            tl.store(even + at + mine, rest, mask=ok)
            tl.store(reference + at + mine, ref, mask=ok)
            tl.store(handed + at + mine, found, mask=ok)
            tl.store(following + at + mine, next_, mask=ok & bent)
        tl.debug_barrier()
    slope = tl.load(share + at + tail, mask=is_tail, other=0.0)
    slope *= tl.exp(-tl.load(logp + at + tail, mask=is_tail, other=0.0))
    tl.store(tail_slope + row, slope + tl.load(even + at + tail, mask=is_tail, other=0.0))


@triton.jit
def softmax_columns(
    x, y, m, weights, grad_p, grad_not_p, slot, parent, terminal, least, norms, tail_keeps,
    reference, handed, tail_slope, gradient, row, start, factor,
    C, S, x_row, y_row, m_row,
    GIVEN: tl.constexpr, HAS_P: tl.constexpr, HAS_NOT_P: tl.constexpr,
    BOUND: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, INNER: tl.constexpr,
    B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the logits of B classes of a row; 0 for those that are not terminal."""
    cols = start + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
    source = above
    leaf = inside
    ends = inside
    if INNER:
        own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
        leaf = inside & (own < 0)
        source = tl.where(leaf, above, own)
        ends = tl.load(column_at(terminal, 0, cols, VEC), mask=inside, other=0) != 0
    long = tl.cast(row, tl.int64)
    if GIVEN:
        high = tl.load(norms + 2 * row)
        total = tl.load(norms + 2 * row + 1)
        value = tl.load(column_at(x, long * x_row, cols, VEC), mask=inside, other=0.0)
        log_q = (value.to(tl.float32) - high) + (0.0 - total)
        q = exp(log_q, FAST)
        heavy = log_q > HEAVY
        hit = tl.zeros([B], tl.float32)
        if HAS_P:
            hit = tl.load(column_at(grad_p, long * C, cols, VEC), mask=inside, other=0.0)
        if HAS_NOT_P:
            miss = tl.load(column_at(grad_not_p, long * C, cols, VEC), mask=inside, other=0.0)
            ratio = q * inverse(1.0 - tl.minimum(q, 0.7), FAST)
            hit -= tl.where(heavy, 0.0, miss * ratio)
        if INNER:
            hit = tl.where(leaf, hit, 0.0)
    else:
        weight = tl.load(column_at(weights, 0, cols, VEC), mask=inside, other=0.0) * factor
        if INNER:
            weight = tl.where(leaf, weight, 0.0)
        log_q, q, one, heavy, _weighed, kept = leaf_answers(
            x, y, m, norms, least, tail_keeps, row, cols, inside, above, weight, S,
            x_row, y_row, m_row, BOUND, MASKED, FAST, VEC,
        )  # fmt: skip
        ratio = q * inverse(1.0 - tl.minimum(q, 0.7), FAST)
        hit = kept * tl.where(one, -1.0, tl.where(heavy, 0.0, ratio))
    if INNER:
        heavy = heavy & leaf
    ref = tl.load(reference + long * S + source, mask=inside, other=0.0)
    given = tl.load(handed + long * S + source, mask=inside, other=0.0)
    found = tl.where(heavy, q * tl.load(tail_slope + row), exp(log_q - ref, FAST) * given) + hit
    if INNER:
        found = tl.where(ends, found, 0.0)
    tl.store(column_at(gradient, long * C, cols, VEC), found, mask=inside)


@triton.jit
def write_softmax(
    x, y, m, leaf_tiles, inner_tiles, weights, stats, upstream, grad_p, grad_not_p,
    slot, parent, terminal, least, norms, tail_keeps, reference, handed, tail_slope, gradient,
    C, S, leaf_count, inner_count, scale, x_row, y_row, m_row,
    GIVEN: tl.constexpr, HAS_P: tl.constexpr, HAS_NOT_P: tl.constexpr,
    BOUND: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr,
    B: tl.constexpr, VEC: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the logits of a row."""
    row = tl.program_id(0)
    factor = 0.0
    if not GIVEN:
        factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    for number in tl.range(0, leaf_count, num_stages=STAGES):
        softmax_columns(
            x, y, m, weights, grad_p, grad_not_p, slot, parent, terminal, least, norms, tail_keeps,
            reference, handed, tail_slope, gradient, row, tl.load(leaf_tiles + number) * B, factor,
            C, S, x_row, y_row, m_row,
            GIVEN, HAS_P, HAS_NOT_P, BOUND, MASKED, FAST, False, B, VEC,
        )  # fmt: skip
    for number in range(inner_count):
        softmax_columns(
            x, y, m, weights, grad_p, grad_not_p, slot, parent, terminal, least, norms, tail_keeps,
            reference, handed, tail_slope, gradient, row, tl.load(inner_tiles + number) * B, factor,
            C, S, x_row, y_row, m_row,
            GIVEN, HAS_P, HAS_NOT_P, BOUND, MASKED, FAST, True, B, VEC,
        )  # fmt: skip
