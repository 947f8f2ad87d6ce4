# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of HCL with bce on a tree: the softmax link, and scope "ancestors".

An entry is bound by the greatest loss of its ancestors, the peak of its parent. In the sweep up an
entry that is bound owes its weight to that ancestor, and every class passes on what it is owed
unless its own loss is the greatest so far.
"""

import triton
import triton.language as tl

from hierlearn.kernels.entries_triton import column_pointers, exp, exp_minus, inverse
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
    logistic,
    node_logs,
    pair_loss,
    window_columns,
)


@triton.jit
def tile_losses(
    x, y, m, logp, norms, beyond, rows, here, cols, C, own, floor, S, L, x_row, y_row, m_row,
    SOFTMAX: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Return of a tile: loss, log p (or the logit), log(1 - p), whether the target is 1, the mask.

    The loss of an unknown entry is MINUS_INF.
    """
    there = here[:, None] & (cols // VEC < C // VEC)[None, :]
    one = is_one(tl.load(column_pointers(y, rows, y_row, cols, VEC), mask=there, other=0))
    if SOFTMAX:
        value = node_logs(x, logp, norms, rows, here, cols, C, own, S, x_row, VEC)
        missed = log_outside(value, beyond, (rows * L)[:, None] + floor[None, :], there, FAST)
        loss = pair_loss(value, missed, one)
    else:
        value = tl.load(column_pointers(x, rows, x_row, cols, VEC), mask=there, other=0.0)
        value = value.to(tl.float32)
        missed = value
        loss = logistic(tl.where(one, -value, value), FAST)
    known = there
    if MASKED:
        known = tl.load(column_pointers(m, rows, m_row, cols, VEC), mask=there, other=0) != 0
        loss = tl.where(known, loss, MINUS_INF)
    return loss, value, missed, one, known


@triton.jit
def sum_tree(
    x, y, m, slot, parent, level, logp, peak, norms, beyond, partials, counts,
    N, C, S, L, height, x_row, y_row, m_row,
    SOFTMAX: tl.constexpr, BOUND: tl.constexpr, MASKED: tl.constexpr,
    FAST: tl.constexpr, R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Write a row of partial class sums (C,), and the counts of errors and of known entries."""
    cols = tl.program_id(0) * B + tl.arange(0, B)
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
            S, L, x_row, y_row, m_row, SOFTMAX, MASKED, FAST, VEC,
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
    at = 2 * (part * tl.num_programs(0) + tl.program_id(0))
    tl.store(counts + at, tl.sum(tl.sum(errors, axis=0), axis=0))
    tl.store(counts + at + 1, tl.sum(tl.sum(seen, axis=0), axis=0))


@triton.jit
def answered(loss, limit, weight, owed):
    """Return the weight that an entry answers for, and the weight that it passes up."""
    keeps = loss >= limit
    leads = loss > limit
    own = tl.where(keeps, weight, 0.0) + tl.where(leads, owed, 0.0)
    return own, tl.where(keeps, 0.0, weight) + tl.where(leads, 0.0, owed)


@triton.jit
def pushed_by(value, out, one, live, kept, FAST: tl.constexpr):
    """Return what the gradients a and b of entries add to all logits, and b of those that are heavy.

    b p / (1 - p) of light classes, less a, and less b of heavy ones.
    """
    heavy = live & (value > HEAVY)
    # Where all terminals are below a class, p = 1 whatever the logits are.
    missed = tl.where(one | (out < NOTHING), 0.0, -kept)
    p = exp(tl.where(heavy, LOG_ZERO, value), FAST)
    light = missed * p * inverse(1.0 - p, FAST)
    found = light - tl.where(one, -kept, tl.where(heavy, missed, 0.0))
    return tl.where(live, found, 0.0), missed, heavy


@triton.jit
def sweep_windows(
    x, y, m, windows, group, slot, parent, logp, peak, norms, beyond, weights, stats, upstream,
    owed, sums, drops,
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
        if PIECES:
            passed = tl.load(owed + slots + cols[None, :], mask=live, other=0.0)
            if SOFTMAX:
                tl.store(sums + rows.to(tl.int64) * T + w, 0.0, mask=here)
        else:
            loss, value, out, one, known = tile_losses(
                x, y, m, logp, norms, beyond, rows, here, cols, C, own, levels,
                S, L, x_row, y_row, m_row, SOFTMAX, MASKED, FAST, VEC,
            )  # fmt: skip
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
                found, missed, heavy = pushed_by(value, out, one, live, kept, FAST)
                tl.store(sums + rows.to(tl.int64) * T + w, tl.sum(found, axis=1), mask=here)
                place = (rows * L)[:, None] + levels[None, :]
                tl.store(drops + place, missed, mask=heavy)
        if BOUND:
            total, _ = tl.associative_scan((passed, groups), 1, add_within)
            tl.store(owed + slots + mine[None, :], total, mask=here[:, None] & last[None, :])


@triton.jit
def rise_owed(
    x, y, m, windows, stages, group, piece_group, slot, parent, logp, peak, norms, beyond, weights,
    owed, drops, factor, row, S, L, stage_0, stage_n, x_row, y_row, m_row,
    SOFTMAX: tl.constexpr, BOUND: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr,
    A: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """``sweep_windows`` for the stages that have no launch of their own, of one row.

    Returns (A,) parts of what all classes of these stages add to all logits.
    """
    long = tl.cast(row, tl.int64)
    at = long * S
    pushed = tl.zeros([A], tl.float32)
    for stage in range(stage_0, stage_n):
        pieces = tl.load(stages + 4 * stage) != 0
        classes = tl.load(stages + 4 * stage) == 0
        stop = tl.load(stages + 4 * stage + 2)
        floor = tl.load(stages + 4 * stage + 3)
        for start in range(tl.load(stages + 4 * stage + 1), stop, A):
            w = start + tl.arange(0, A)
            begin = tl.load(windows + 2 * w, mask=w < stop, other=0)
            end = tl.load(windows + 2 * w + 1, mask=w < stop, other=0)
            cols = begin[:, None] + tl.arange(0, K)[None, :]
            live = cols < end[:, None]
            groups = tl.where(pieces, piece_group, group)
            mine = tl.load(groups + cols, mask=live, other=-1)
            following = tl.load(groups + cols + 1, mask=live & (cols + 1 < end[:, None]), other=-1)
            last = live & (mine != following)
            node = live & classes
            own = tl.load(slot + cols, mask=node, other=-1)
            one = is_one(tl.load(y + long * y_row + cols, mask=node, other=0))
            value = tl.load(x + long * x_row + cols, mask=node, other=0.0).to(tl.float32)
            out = value
            if SOFTMAX:
                high = tl.load(norms + 2 * row)
                value = (value - high) + (0.0 - tl.load(norms + 2 * row + 1))
                known_p = tl.load(logp + at + own, mask=own >= 0, other=0.0)
                value = tl.where(own >= 0, known_p, value)
                place = cols * 0 + (row * L + floor)
                out = log_outside(value, beyond, place, node, FAST)
                loss = pair_loss(value, out, one)
            else:
                loss = logistic(tl.where(one, -value, value), FAST)
            weight = tl.load(weights + cols, mask=node, other=0.0) * factor
            if MASKED:
                known = tl.load(m + long * m_row + cols, mask=node, other=0) != 0
                loss = tl.where(known, loss, MINUS_INF)
                weight = tl.where(known, weight, 0.0)
            kept = weight
            passed = weight
            if BOUND:
                above = tl.load(parent + cols, mask=node, other=0)
                limit = tl.load(peak + at + above, mask=node, other=MINUS_INF)
                debt = tl.load(owed + at + own, mask=own >= 0, other=0.0)
                kept, passed = answered(loss, limit, weight, debt)
                passed = tl.where(node, passed, 0.0)
                passed += tl.load(owed + at + cols, mask=live & pieces, other=0.0)
                total, _ = tl.associative_scan((passed, mine), 1, add_within)
                tl.store(owed + at + mine, total, mask=last)
            if SOFTMAX:
                found, missed, heavy = pushed_by(value, out, one, node, kept, FAST)
                pushed += tl.sum(found, axis=1)
                tl.store(drops + place, missed, mask=heavy)
        tl.debug_barrier()
    return pushed


@triton.jit
def sweep_rows(
    x, y, m, windows, stages, group, piece_group, slot, parent, peak, weights, stats, upstream, owed,
    S, L, scale, stage_0, stage_n, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr, A: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Add up what is owed in the stages that have no launch of their own, one row per program."""
    factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    rise_owed(
        x, y, m, windows, stages, group, piece_group, slot, parent, x, peak, x, x, weights,
        owed, x, factor, tl.program_id(0), S, L, stage_0, stage_n, x_row, y_row, m_row,
        False, True, MASKED, FAST, A, K,
    )  # fmt: skip


@triton.jit
def write_sigmoid(
    x, y, m, weights, stats, upstream, slot, parent, peak, owed, gradient,
    N, C, S, scale, height, x_row, y_row, m_row,
    MASKED: tl.constexpr,
    FAST: tl.constexpr, R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Write the gradient of HCL with sigmoids and scope "ancestors"."""
    cols = tl.program_id(0) * B + tl.arange(0, B)
    inside = cols // VEC < C // VEC
    own = tl.load(column_at(slot, 0, cols, VEC), mask=inside, other=-1)
    above = tl.load(column_at(parent, 0, cols, VEC), mask=inside, other=0)
    factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    weight = tl.load(column_at(weights, 0, cols, VEC), mask=inside, other=0.0) * factor
    some_inner = tl.max(own) >= 0
    start = tl.program_id(1) * height
    for row in range(start, tl.minimum(start + height, N), R):
        rows = row + tl.arange(0, R)
        here = rows < N
        there = here[:, None] & inside[None, :]
        loss, value, _missed, one, known = tile_losses(
            x, y, m, x, x, x, rows, here, cols, C, own, own, S, 0, x_row, y_row, m_row,
            False, MASKED, FAST, VEC,
        )  # fmt: skip
        slots = (rows.to(tl.int64) * S)[:, None]
        limit = tl.load(peak + slots + above[None, :], mask=there, other=MINUS_INF)
        kept = tl.where(known & (loss >= limit), weight[None, :], 0.0)
        if some_inner:
            inner = there & (own >= 0)[None, :] & (loss > limit)
            kept += tl.load(owed + slots + own[None, :], mask=inner, other=0.0)
        slope = inverse(1.0 + exp_minus(tl.where(one, -value, value), FAST), FAST)
        found = kept * tl.where(one, -slope, slope)
        tl.store(column_pointers(gradient, rows, C, cols, VEC), found, mask=there)
