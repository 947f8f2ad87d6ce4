# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of HCL with bce on a tree: the softmax link, and scope "ancestors".

An entry is bound by the greatest loss of its ancestors, the peak of its parent. In the sweep up an
entry that is bound owes its weight to that ancestor, and every class passes on what it is owed
unless its own loss is the greatest so far. For sigmoids z = (1 - 2y) x is compared instead of the
loss, which grows with it. What the heavy leaf of a row adds to the gradient of all logits is added
by ``slot_gradients``.
"""

import triton
import triton.language as tl

from hierlearn.kernels.entries_triton import (
    LOWEST,
    column_pointers,
    exp,
    exp_minus,
    inverse,
    load_tile,
    log1p,
    product_minus_1,
    row_pointers,
)
from hierlearn.kernels.hcl_triton import add_up
from hierlearn.kernels.tree_triton import (
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
def tile_losses(
    x, y, m, logp, norms, beyond, rows, here, cols, C, own, floor, S, L, x_row, y_row, m_row,
    INNER: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Return of a tile of a softmax: loss, log p, log(1 - p), whether the target is 1, the mask.

    The loss of an unknown entry is MINUS_INF.
    """
    there = here[:, None] & (cols // VEC < C // VEC)[None, :]
    one = is_one(tl.load(column_pointers(y, rows, y_row, cols, VEC), mask=there, other=0))
    value = node_logs(x, logp, norms, rows, here, cols, C, own, S, x_row, INNER, VEC)
    missed = log_outside(value, beyond, (rows * L)[:, None] + floor[None, :], there, FAST)
    loss = pair_loss(value, missed, one)
    known = there
    if MASKED:
        known = tl.load(column_pointers(m, rows, m_row, cols, VEC), mask=there, other=0) != 0
        loss = tl.where(known, loss, MINUS_INF)
    return loss, value, missed, one, known


@triton.jit
def sum_softmax(
    x, y, m, tiles, slot, parent, level, logp, peak, norms, beyond, partials, counts,
    N, C, S, L, T, height, x_row, y_row, m_row,
    BOUND: tl.constexpr, INNER: tl.constexpr, MASKED: tl.constexpr,
    FAST: tl.constexpr, R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Write a row of partial class sums (C,), and the counts of errors and of known entries."""
    tile = tl.load(tiles + tl.program_id(0))
    cols = tile * B + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
    above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
    floor = tl.load(column_at(level, 0, cols, VEC), mask=inside, other=0)
    part = tl.program_id(1)
    sums = tl.zeros([R, B], tl.float32)
    errors = tl.zeros([R, B], tl.int32)
    seen = tl.zeros([R, B], tl.int32)
    for row in range(part * height, tl.minimum(part * height + height, N), R):
        rows = row + tl.arange(0, R)
        loss, _value, _missed, _one, known = tile_losses(
            x, y, m, logp, norms, beyond, rows, rows < N, cols, C, own, floor,
            S, L, x_row, y_row, m_row, INNER, MASKED, FAST, VEC,
        )  # fmt: skip
        if BOUND:
            at = (peak + rows.to(tl.int64) * S)[:, None] + above[None, :]
            limit = tl.load(at, mask=known, other=MINUS_INF)
            loss = tl.maximum(loss, limit, propagate_nan=tl.PropagateNan.ALL)
        sums += tl.where(known, loss, 0.0)
        errors += (known & (loss >= WRONG)).to(tl.int32)
        if MASKED:
            seen += known.to(tl.int32)
    at = column_at(partials, part.to(tl.int64) * C, cols, VEC)
    tl.store(at, tl.sum(sums, axis=0), mask=inside)
    at = 2 * (part * T + tile)
    tl.store(counts + at, tl.sum(tl.sum(errors, axis=0), axis=0))
    tl.store(counts + at + 1, tl.sum(tl.sum(seen, axis=0), axis=0))


@triton.jit
def sum_sigmoid(
    x, y, m, parent, peak, partials, counts,
    N, C, S, height, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr, R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """``sum_softmax`` for sigmoids and scope "ancestors"."""
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
        for row in range(start, tl.minimum(start + 64, end_row), R):
            rows = row + tl.arange(0, R)
            here = rows < N
            x_ptr = row_pointers(x, row, x_row, cols, R, VEC)
            y_ptr = row_pointers(y, row, y_row, cols, R, VEC)
            m_ptr = row_pointers(m, row, m_row, cols, R, VEC)
            z, _, known = load_tile(x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, False)
            at = (peak + rows.to(tl.int64) * S)[:, None] + above[None, :]
            limit = tl.load(at, mask=here[:, None] & inside[None, :], other=LOWEST)
            limit = tl.maximum(limit, LOWEST)
            more, growth, wrong = add_up(z, z, known, limit, limit, MASKED, False, FAST)
            losses += more
            grown = product_minus_1(grown, growth)
            errors += wrong
            if MASKED:
                seen += tl.sum(known.to(tl.int32), axis=0)
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
    """Return what the gradients a and b of entries add to all logits, and b of those that are heavy.

    b p / (1 - p) of light classes, less a, and less b of heavy ones; nothing for the heavy leaf.
    """
    heavy = live & (value > HEAVY)
    # Where all terminals are below a class, p = 1 whatever the logits are.
    missed = tl.where(one | (out < NOTHING), 0.0, -kept)
    p = exp(tl.where(heavy, LOG_ZERO, value), FAST)
    light = missed * p * inverse(1.0 - p, FAST)
    found = light - tl.where(one, -kept, tl.where(heavy, missed, 0.0))
    return tl.where(live & ~(heavy & leaf), found, 0.0), missed, heavy & ~leaf


@triton.jit
def leaf_answers(
    x, y, m, norms, least, tail_keeps, rows, here, cols, C, above, weight, S, x_row, y_row, m_row,
    BOUND: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Return of a tile of leaves of a softmax: log p, p, whether the target is 1 and p is heavy.

    Also the weight of each entry, and the part of it that is not bound: with a target of 0 those
    whose p is not less than ``least``, with 1 those whose 1 - p is not.
    """
    there = here[:, None] & (cols // VEC < C // VEC)[None, :]
    one = is_one(tl.load(column_pointers(y, rows, y_row, cols, VEC), mask=there, other=0))
    high = tl.load(norms + 2 * rows, mask=here, other=0.0)
    total = tl.load(norms + 2 * rows + 1, mask=here, other=0.0)
    value = tl.load(column_pointers(x, rows, x_row, cols, VEC), mask=there, other=0.0)
    value = (value.to(tl.float32) - high[:, None]) + (0.0 - total[:, None])
    q = exp(value, FAST)
    heavy = value > HEAVY
    weighed = tl.broadcast_to(weight[None, :], q.shape)
    if MASKED:
        known = tl.load(column_pointers(m, rows, m_row, cols, VEC), mask=there, other=0) != 0
        weighed = tl.where(known, weighed, 0.0)
    kept = weighed
    if BOUND:
        at = (least + rows.to(tl.int64) * S)[:, None] + above[None, :]
        limit = tl.load(at, mask=there, other=0.0)
        kept = tl.where(tl.where(one, 1.0 - q, q) >= limit, weighed, 0.0)
        keeps = tl.load(tail_keeps + rows, mask=here, other=0.0)
        kept = tl.where(heavy, weighed * keeps[:, None], kept)
    return value, q, one, heavy, weighed, kept


@triton.jit
def sweep_windows(
    x, y, m, windows, group, slot, parent, logp, peak, least, norms, beyond, tail_keeps,
    weights, stats, upstream, owed, sums, drops,
    N, C, S, L, T, scale, window_0, floor, height, x_row, y_row, m_row,
    SOFTMAX: tl.constexpr, BOUND: tl.constexpr, MASKED: tl.constexpr, PIECES: tl.constexpr,
    INNER: tl.constexpr, FAST: tl.constexpr, R: tl.constexpr, K: tl.constexpr, VEC: tl.constexpr,
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
    groups = tl.broadcast_to(mine[None, :], [R, K])
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
    start = tl.program_id(1) * height
    for row in range(start, tl.minimum(start + height, N), R):
        rows = row + tl.arange(0, R)
        here = rows < N
        live = here[:, None] & inside[None, :]
        slots = (rows.to(tl.int64) * S)[:, None]
        found = tl.zeros([R, K], tl.float32)
        if PIECES:
            passed = tl.load(owed + slots + cols[None, :], mask=live, other=0.0)
        elif SOFTMAX and not INNER:
            _value, q, one, heavy, weighed, kept = leaf_answers(
                x, y, m, norms, least, tail_keeps, rows, here, cols, C, above, weight, S,
                x_row, y_row, m_row, BOUND, MASKED, FAST, VEC,
            )  # fmt: skip
            passed = weighed - kept
            ratio = q * inverse(1.0 - tl.minimum(q, 0.7), FAST)
            found = tl.where(heavy | ~live, 0.0, kept * tl.where(one, 1.0, -ratio))
        else:
            if SOFTMAX:
                loss, value, out, one, known = tile_losses(
                    x, y, m, logp, norms, beyond, rows, here, cols, C, own, levels,
                    S, L, x_row, y_row, m_row, INNER, MASKED, FAST, VEC,
                )  # fmt: skip
            else:
                x_ptr = column_pointers(x, rows, x_row, cols, VEC)
                y_ptr = column_pointers(y, rows, y_row, cols, VEC)
                m_ptr = column_pointers(m, rows, m_row, cols, VEC)
                loss, _sign, known = load_tile(
                    x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, False
                )
            limit = tl.full([R, K], MINUS_INF, tl.float32)
            debt = tl.zeros([R, K], tl.float32)
            if BOUND:
                limit = tl.load(peak + slots + above[None, :], mask=live, other=MINUS_INF)
                if INNER:
                    inner = live & (own >= 0)[None, :]
                    debt = tl.load(owed + slots + own[None, :], mask=inner, other=0.0)
            weighed = tl.where(known & live, weight[None, :], 0.0)
            kept, passed = answered(loss, limit, weighed, debt)
            if SOFTMAX:
                leaf = (own < 0)[None, :]
                found, missed, heavy = pushed_by(value, out, one, live, leaf, kept, FAST)
                place = (rows * L)[:, None] + levels[None, :]
                tl.store(drops + place, missed, mask=heavy)
        if SOFTMAX:
            tl.store(sums + rows.to(tl.int64) * T + w, tl.sum(found, axis=1), mask=here)
        if BOUND:
            total, _ = tl.associative_scan((passed, groups), 1, add_within)
            tl.store(owed + slots + mine[None, :], total, mask=here[:, None] & last[None, :])


@triton.jit
def write_sigmoid(
    x, y, m, tiles, weights, stats, upstream, slot, parent, peak, owed, gradient,
    N, C, S, scale, height, x_row, y_row, m_row,
    MASKED: tl.constexpr, INNER: tl.constexpr,
    FAST: tl.constexpr, R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Write the gradient of HCL with sigmoids and scope "ancestors"."""
    cols = tl.load(tiles + tl.program_id(0)) * B + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
    above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
    factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    weight = tl.load(column_at(weights, 0, cols, VEC), mask=inside, other=0.0) * factor
    start = tl.program_id(1) * height
    for row in range(start, tl.minimum(start + height, N), R):
        rows = row + tl.arange(0, R)
        here = rows < N
        there = here[:, None] & inside[None, :]
        x_ptr = column_pointers(x, rows, x_row, cols, VEC)
        y_ptr = column_pointers(y, rows, y_row, cols, VEC)
        m_ptr = column_pointers(m, rows, m_row, cols, VEC)
        z, sign, known = load_tile(x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, False)
        slots = (rows.to(tl.int64) * S)[:, None]
        limit = tl.load(peak + slots + above[None, :], mask=there, other=MINUS_INF)
        kept = tl.where(z >= limit, weight[None, :], 0.0)
        if MASKED:
            kept = tl.where(known, kept, 0.0)
        if INNER:
            leads = there & (own >= 0)[None, :] & (z > limit)
            kept += tl.load(owed + slots + own[None, :], mask=leads, other=0.0)
        found = kept * sign * inverse(1.0 + exp_minus(z, FAST), FAST)
        tl.store(column_pointers(gradient, rows, C, cols, VEC), found, mask=there)
