# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of HCL; ``hcl`` launches them.

The sweep down carries the running maximum of v (``entries_triton``) and its argmax from level to
level: peak and place. Given those, the tiles of a batch are independent of each other and class
sums stay in registers. The sweep up carries the weight of the entries whose loss is the running
maximum, which belongs to the argmax.

A tile is R rows of B columns and begins at a multiple of B, so that loads stay aligned; one that
two levels share is read for each of them. No kernel uses atomics: partial sums are added up in a
fixed order, so that every run is bitwise the same.
"""

import triton
import triton.language as tl

from hierlearn.kernels.entries_triton import (
    LOWEST,
    MINUS_INF,
    column_pointers,
    compared_value,
    exp_minus,
    focal_parts,
    inverse,
    is_wrong,
    load_tile,
    log1p,
    product_minus_1,
    row_pointers,
    tile_columns,
)
from hierlearn.kernels.select_triton import select_and_weigh


@triton.jit
def find_peaks(
    logits, targets, mask, bounds, peaks, places, worst,
    N, C, L, x_row, y_row, m_row, positive, negative, gamma,
    MASKED: tl.constexpr, FOCAL: tl.constexpr, FAST: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr, EVEN: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Sweep all levels but the deepest, R rows per program.

    Writes, (L - 1, N) each, the running maximum of v after each level, the first class that attains
    it, and for focal the running maximum of z, which says whether an error binds.
    """
    rows = tl.program_id(0) * R + tl.arange(0, R)
    here = rows < N
    peak = tl.full([R], MINUS_INF, tl.float32)
    worst_z = tl.full([R], MINUS_INF, tl.float32)
    place = tl.zeros([R], tl.int32)
    for level in range(L - 1):
        begin = tl.load(bounds + level)
        end = tl.load(bounds + level + 1)
        best = tl.full([R, B], MINUS_INF, tl.float32)
        best_z = tl.full([R, B], MINUS_INF, tl.float32)
        which = tl.zeros([R, B], tl.int32)
        for tile in tl.range(begin // B, tl.cdiv(end, B), num_stages=STAGES):
            cols = tile_columns(tile, C, B, EVEN)
            inside = ((cols >= begin) & (cols < end))[None, :]
            x_ptr = column_pointers(logits, rows, x_row, cols, VEC)
            y_ptr = column_pointers(targets, rows, y_row, cols, VEC)
            m_ptr = column_pointers(mask, rows, m_row, cols, VEC)
            z, sign, known = load_tile(x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, EVEN)
            v = compared_value(z, sign, known, positive, negative, gamma, FOCAL, FAST)
            higher = inside & (v > best)
            best = tl.where(higher, v, best)
            which = tl.where(higher, cols[None, :], which)
            if FOCAL:
                best_z = tl.maximum(best_z, tl.where(inside, z, MINUS_INF))
        top = tl.max(best, axis=1)
        first = tl.min(tl.where(best == top[:, None], which, C), axis=1)
        rose = top > peak
        peak = tl.where(rose, top, peak)
        place = tl.where(rose, first, place)
        at = level * N + rows
        tl.store(peaks + at, peak, mask=here)
        tl.store(places + at, place, mask=here)
        if FOCAL:
            worst_z = tl.maximum(worst_z, tl.max(best_z, axis=1))
            tl.store(worst + at, worst_z, mask=here)


@triton.jit
def add_up(
    v, z, known, limit, above,
    MASKED: tl.constexpr, FOCAL: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Return three (B,) sums over the rows of a tile.

    The losses under the constraint but for a logarithm, what that is of, and the errors. With b the
    greater of z and its limit, softplus(b) = (b + |b|) / 2 + log(1 + exp(-|b|)), and the logarithms
    of several rows are one logarithm of a product.
    """
    # A maximum that propagates NaN, so that a diverged network shows in the loss.
    bound = tl.maximum(v, limit, propagate_nan=tl.PropagateNan.ALL)
    if FOCAL:
        losses = tl.sum(tl.where(known, bound, 0.0), axis=0)
        grown = tl.zeros_like(losses)
        wrong = (tl.maximum(z, above) >= 0) & known
        errors = tl.sum(wrong.to(tl.float32), axis=0)
    else:
        if MASKED:
            bound = tl.where(known, bound, LOWEST)
        losses = 0.5 * tl.sum(bound + tl.abs(bound), axis=0)
        grown = tl.reduce(exp_minus(tl.abs(bound), FAST), 0, product_minus_1)
        errors = tl.sum(is_wrong(bound, FAST), axis=0)
    return losses, grown, errors


@triton.jit
def sum_classes(
    logits, targets, mask, bounds, tiles, peaks, worst, partials, counts,
    N, C, height, x_row, y_row, m_row, positive, negative, gamma,
    MASKED: tl.constexpr, FOCAL: tl.constexpr, FAST: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr, EVEN: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Write a row of partial class sums (C,), and the counts of errors and of known entries.

    A program takes one tile of columns, of one level, and ``height`` rows, R at a time.
    """
    level = tl.load(tiles + 2 * tl.program_id(0))
    begin = tl.load(bounds + level)
    end = tl.load(bounds + level + 1)
    tile = tl.load(tiles + 2 * tl.program_id(0) + 1)
    cols = tile_columns(tile, C, B, EVEN)
    inside = (cols >= tl.maximum(begin, tile * B)) & (cols < end)
    part = tl.program_id(1)
    losses = tl.zeros([B], tl.float32)
    errors = tl.zeros([B], tl.float32)  # integers, exact up to 2^24 rows
    seen = tl.zeros([B], tl.int32)
    end_row = tl.minimum(part * height + height, N)
    for start in range(part * height, end_row, 64):
        grown = tl.zeros([B], tl.float32)  # below 2^64
        for row in tl.range(start, tl.minimum(start + 64, end_row), R, num_stages=STAGES):
            rows = row + tl.arange(0, R)
            here = rows < N
            x_ptr = row_pointers(logits, row, x_row, cols, R, VEC)
            y_ptr = row_pointers(targets, row, y_row, cols, R, VEC)
            m_ptr = row_pointers(mask, row, m_row, cols, R, VEC)
            z, sign, known = load_tile(x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, EVEN)
            v = compared_value(z, sign, known, positive, negative, gamma, FOCAL, FAST)
            at = (level - 1) * N + rows
            peak = tl.load(peaks + at, mask=here & (level > 0), other=LOWEST)
            peak = tl.maximum(peak, LOWEST)
            above = peak
            if FOCAL:
                above = tl.load(worst + at, mask=here & (level > 0), other=MINUS_INF)
            more, growth, wrong = add_up(
                v, z, known, peak[:, None], above[:, None], MASKED, FOCAL, FAST
            )
            losses += more
            grown = product_minus_1(grown, growth)
            errors += wrong
            if MASKED:
                seen += tl.sum(known.to(tl.int32), axis=0)
        losses += log1p(grown)
    tl.store(partials + part.to(tl.int64) * C + cols, losses, mask=inside)
    at = 2 * (part * tl.num_programs(0) + tl.program_id(0))
    tl.store(counts + at, tl.sum(tl.where(inside, errors, 0.0).to(tl.int32), axis=0))
    tl.store(counts + at + 1, tl.sum(tl.where(inside, seen, 0), axis=0))


@triton.jit
def sweep_few(
    logits, targets, mask, bounds, peaks, places, partials, counts,
    N, C, height, L, x_row, y_row, m_row, positive, negative, gamma,
    MASKED: tl.constexpr, FOCAL: tl.constexpr, FAST: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
    EVEN: tl.constexpr, STAGES: tl.constexpr,  # noqa: ARG001
):  # fmt: skip
    """``find_peaks`` and ``sum_classes`` in one, where a tile holds all classes of a row."""
    cols = tl.arange(0, B)
    losses = tl.zeros([B], tl.float32)
    errors = tl.zeros([B], tl.float32)
    seen = tl.zeros([B], tl.int32)
    part = tl.program_id(0)
    for row in range(part * height, tl.minimum(part * height + height, N), R):
        rows = row + tl.arange(0, R)
        here = rows < N
        x_ptr = row_pointers(logits, row, x_row, cols, R, VEC)
        y_ptr = row_pointers(targets, row, y_row, cols, R, VEC)
        m_ptr = row_pointers(mask, row, m_row, cols, R, VEC)
        z, sign, known = load_tile(x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, False)
        v = compared_value(z, sign, known, positive, negative, gamma, FOCAL, FAST)
        peak = tl.full([R], MINUS_INF, tl.float32)
        worst = tl.full([R], MINUS_INF, tl.float32)
        place = tl.zeros([R], tl.int32)
        limit = tl.full([R, B], LOWEST, tl.float32)  # the running maximum above each entry
        above = tl.full([R, B], MINUS_INF, tl.float32)
        for level in range(L - 1):
            begin = tl.load(bounds + level)
            end = tl.load(bounds + level + 1)
            inside = ((cols >= begin) & (cols < end))[None, :]
            own = tl.where(inside, v, MINUS_INF)
            top = tl.max(own, axis=1)
            leader = tl.min(tl.where(own == top[:, None], cols[None, :], C), axis=1)
            rose = top > peak
            peak = tl.where(rose, top, peak)
            place = tl.where(rose, leader, place)
            at = level * N + rows
            tl.store(peaks + at, peak, mask=here)
            tl.store(places + at, place, mask=here)
            deeper = (cols >= end)[None, :]
            limit = tl.where(deeper, tl.maximum(peak, LOWEST)[:, None], limit)
            if FOCAL:
                worst = tl.maximum(worst, tl.max(tl.where(inside, z, MINUS_INF), axis=1))
                above = tl.where(deeper, worst[:, None], above)
        more, growth, wrong = add_up(v, z, known, limit, above, MASKED, FOCAL, FAST)
        losses += more + log1p(growth)
        errors += wrong
        if MASKED:
            seen += tl.sum(known.to(tl.int32), axis=0)
    tl.store(partials + part * C + cols, losses, mask=cols < C)
    there = cols < C
    tl.store(counts + 2 * part, tl.sum(tl.where(there, errors, 0.0).to(tl.int32), axis=0))
    tl.store(counts + 2 * part + 1, tl.sum(tl.where(there, seen, 0), axis=0))


@triton.jit
def backward_tile(
    logits, targets, mask, weights, gradient, rows, here, begin, end, tile, peak, place, owed,
    factor, bound, C, x_row, y_row, m_row, positive, negative, gamma,
    MASKED: tl.constexpr, FOCAL: tl.constexpr, DEEPEST: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr, FAST: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a tile; return the weight of its bound entries, added to ``bound``."""
    cols = tile_columns(tile, C, B, EVEN)
    inside = (cols >= tl.maximum(begin, tile * B)) & (cols < end)
    x_ptr = column_pointers(logits, rows, x_row, cols, VEC)
    y_ptr = column_pointers(targets, rows, y_row, cols, VEC)
    m_ptr = column_pointers(mask, rows, m_row, cols, VEC)
    z, sign, known = load_tile(x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, EVEN)
    at = tl.multiple_of(weights + cols, 4 * VEC)
    there = cols // VEC < C // VEC
    weight = tl.load(at) if EVEN else tl.load(at, mask=there, other=0.0)
    weight = tl.where(inside, weight * factor, 0.0)
    own = tl.broadcast_to(weight[None, :], [R, B])
    if MASKED:
        own = tl.where(known, own, 0.0)
    v = compared_value(z, sign, known, positive, negative, gamma, FOCAL, FAST)
    kept = tl.where(v < peak[:, None], 0.0, own)
    bound += own - kept
    own = kept
    if not DEEPEST:
        own += tl.where(cols[None, :] == place[:, None], owed[:, None], 0.0)
    slope = inverse(1.0 + exp_minus(z, FAST), FAST)
    if FOCAL:
        soft, rate = focal_parts(z, sign, positive, negative, gamma, FAST)
        slope = rate * (gamma * (1.0 - slope) * tl.minimum(soft, -LOWEST) + slope)
    slope *= own * sign
    at = column_pointers(gradient, rows, C, cols, VEC)
    # Only a tile that lies inside its level may be stored without a check of every column.
    if (tile * B >= begin) & (tile * B + B <= end):
        if EVEN:
            tl.store(at, slope)
        else:
            tl.store(at, slope, mask=here[:, None])
    else:
        tl.store(at, slope, mask=here[:, None] & inside[None, :])
    return bound


@triton.jit
def sweep_up(
    logits, targets, mask, bounds, peaks, places, weights, stats, upstream, gradient,
    N, C, L, scale, x_row, y_row, m_row, positive, negative, gamma,
    MASKED: tl.constexpr, FOCAL: tl.constexpr, FAST: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr, EVEN: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Write the gradient, from the deepest level up."""
    rows = tl.program_id(0) * R + tl.arange(0, R)
    here = rows < N
    factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    begin = tl.load(bounds + L - 1)
    peak = tl.load(peaks + (L - 2) * N + rows, mask=here & (L > 1), other=MINUS_INF)
    place = tl.zeros([R], tl.int32)
    owed = tl.zeros([R], tl.float32)
    bound = tl.zeros([R, B], tl.float32)
    for tile in tl.range(begin // B, tl.cdiv(C, B), num_stages=STAGES):
        bound = backward_tile(
            logits, targets, mask, weights, gradient, rows, here, begin, C, tile, peak, place, owed,
            factor, bound, C, x_row, y_row, m_row, positive, negative, gamma,
            MASKED, FOCAL, True, R, B, VEC, FAST, EVEN,
        )  # fmt: skip
    owed = tl.sum(bound, axis=1)
    for above in range(1, L):
        level = L - 1 - above
        begin = tl.load(bounds + level)
        end = tl.load(bounds + level + 1)
        at = level * N + rows
        place = tl.load(places + at, mask=here, other=C)
        peak = tl.load(peaks + at - N, mask=here & (level > 0), other=MINUS_INF)
        bound = tl.zeros([R, B], tl.float32)
        for tile in tl.range(begin // B, tl.cdiv(end, B), num_stages=STAGES):
            bound = backward_tile(
                logits, targets, mask, weights, gradient, rows, here, begin, end, tile, peak, place,
                owed, factor, bound, C, x_row, y_row, m_row, positive, negative, gamma,
                MASKED, FOCAL, False, R, B, VEC, FAST, EVEN,
            )  # fmt: skip
        # An argmax in this level has received its weight; the rest goes further up.
        owed = tl.where(place >= begin, 0.0, owed) + tl.sum(bound, axis=1)


@triton.jit
def write_gradient_few(
    logits, targets, mask, bounds, peaks, places, gradient, weight, rows,
    N, C, L, x_row, y_row, m_row, positive, negative, gamma,
    MASKED: tl.constexpr, FOCAL: tl.constexpr, FAST: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Write the gradient of rows whose classes fit one tile, given (B,) weights."""
    here = rows < N
    cols = tl.arange(0, B)
    x_ptr = column_pointers(logits, rows, x_row, cols, VEC)
    y_ptr = column_pointers(targets, rows, y_row, cols, VEC)
    m_ptr = column_pointers(mask, rows, m_row, cols, VEC)
    z, sign, known = load_tile(x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, False)
    v = compared_value(z, sign, known, positive, negative, gamma, FOCAL, FAST)
    owed = tl.zeros([R], tl.float32)
    due = tl.zeros([R, B], tl.float32)  # the weight that each entry receives
    for above in range(L):
        level = L - 1 - above
        begin = tl.load(bounds + level)
        end = tl.load(bounds + level + 1)
        at = level * N + rows
        place = tl.load(places + at, mask=here & (above > 0), other=C)
        peak = tl.load(peaks + at - N, mask=here & (level > 0), other=MINUS_INF)
        inside = ((cols >= begin) & (cols < end))[None, :]
        own = tl.where(inside & known, weight[None, :], 0.0)
        kept = tl.where(v < peak[:, None], 0.0, own)
        paid = inside & (cols[None, :] == place[:, None])
        due += kept + tl.where(paid, owed[:, None], 0.0)
        owed = tl.where(place >= begin, 0.0, owed) + tl.sum(own - kept, axis=1)
    slope = inverse(1.0 + exp_minus(z, FAST), FAST)
    if FOCAL:
        soft, rate = focal_parts(z, sign, positive, negative, gamma, FAST)
        slope = rate * (gamma * (1.0 - slope) * tl.minimum(soft, -LOWEST) + slope)
    at = column_pointers(gradient, rows, C, cols, VEC)
    tl.store(at, slope * due * sign, mask=here[:, None] & (cols // VEC < C // VEC)[None, :])


@triton.jit
def sweep_up_few(
    logits, targets, mask, bounds, peaks, places, weights, stats, upstream, gradient,
    N, C, L, scale, x_row, y_row, m_row, positive, negative, gamma,
    MASKED: tl.constexpr, FOCAL: tl.constexpr, FAST: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
    EVEN: tl.constexpr, STAGES: tl.constexpr,  # noqa: ARG001
):  # fmt: skip
    """``sweep_up`` where one tile holds all classes of a row, which is read once."""
    rows = tl.program_id(0) * R + tl.arange(0, R)
    cols = tl.arange(0, B)
    factor = tl.load(upstream).to(tl.float32) * tl.load(stats + 1) * scale
    weight = tl.load(weights + cols, mask=cols < C, other=0.0) * factor
    write_gradient_few(
        logits, targets, mask, bounds, peaks, places, gradient, weight, rows,
        N, C, L, x_row, y_row, m_row, positive, negative, gamma,
        MASKED, FOCAL, FAST, R, B, VEC,
    )  # fmt: skip


@triton.jit
def select_and_sweep_up_few(
    logits, targets, mask, bounds, peaks, places, gradient,
    partials, counts, threshold, sums, selected, weights, stats, loss,
    N, C, L, height, parts, row_count, scale, floor, entries, x_row, y_row, m_row,
    positive, negative, gamma,
    MASKED: tl.constexpr, FOCAL: tl.constexpr, FAST: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
    EVEN: tl.constexpr, STAGES: tl.constexpr,  # noqa: ARG001
    MEAN: tl.constexpr, BY_ROWS: tl.constexpr, FIXED: tl.constexpr, BG: tl.constexpr,
):  # fmt: skip
    """The selection and the gradient in one: every program selects, then writes its rows.

    Selecting in every program takes no longer than selecting once, and saves a launch.
    """
    program = tl.program_id(0)
    weight, share = select_and_weigh(
        partials, counts, threshold, sums, selected, weights, stats, loss,
        parts, parts, C, row_count, scale, floor, entries, program == 0,
        MASKED, MEAN, BY_ROWS, FIXED, BG, B,
    )  # fmt: skip
    weight *= share * scale
    for row in range(program * height, tl.minimum(program * height + height, N), R):
        write_gradient_few(
            logits, targets, mask, bounds, peaks, places, gradient, weight, row + tl.arange(0, R),
            N, C, L, x_row, y_row, m_row, positive, negative, gamma,
            MASKED, FOCAL, FAST, R, B, VEC,
        )  # fmt: skip
