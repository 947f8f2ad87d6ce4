# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of HCL by levels, and of the curriculum; ``hcl`` launches them.

The sweep down carries the running maximum of z (``entries_triton``) and its argmax from level to
level: peak and place. Given those, the tiles of a batch are independent of each other and class
sums stay in registers. The sweep up carries the weight of the entries whose loss is the running
maximum, which belongs to the argmax.

A tile is R rows of B columns and begins at a multiple of B, so that loads stay aligned; one that
two levels share is read for each of them. No kernel uses atomics: partial sums are added up in a
fixed order, so that every run is bitwise the same.

**The curriculum**: class sums, Algorithm 1, weights and loss. The selection is a prefix of the
class losses in ascending order, and needs no sort: losses are not negative, so their bits are
ordered as they are, and the smallest bits that are not selected (``bound``) are found a few at a
time, from the sum and the number of the losses below each of several trials. Of the losses that tie
at the bound the first in class order are taken, as a stable sort would. Sums of thousands of losses
are compared with integers, for which single precision is too coarse: they are double.
"""

import triton
import triton.language as tl

from hierlearn.kernels.entries_triton import (
    LOWEST,
    MINUS_INF,
    column_pointers,
    exp_minus,
    inverse,
    is_wrong,
    load_tile,
    log1p,
    product_minus_1,
    row_pointers,
    tile_columns,
)


@triton.jit
def find_peaks(
    logits, targets, mask, bounds, peaks, places,
    N, C, L, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr, EVEN: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Sweep all levels but the deepest, R rows per program.

    Writes, (L - 1, N) each, the running maximum of z after each level, and the first class that
    attains it.
    """
    rows = tl.program_id(0) * R + tl.arange(0, R)
    here = rows < N
    peak = tl.full([R], MINUS_INF, tl.float32)
    place = tl.zeros([R], tl.int32)
    for level in range(L - 1):
        begin = tl.load(bounds + level)
        end = tl.load(bounds + level + 1)
        best = tl.full([R, B], MINUS_INF, tl.float32)
        which = tl.zeros([R, B], tl.int32)
        for tile in tl.range(begin // B, tl.cdiv(end, B), num_stages=STAGES):
            cols = tile_columns(tile, C, B, EVEN)
            inside = ((cols >= begin) & (cols < end))[None, :]
            x_ptr = column_pointers(logits, rows, x_row, cols, VEC)
            y_ptr = column_pointers(targets, rows, y_row, cols, VEC)
            m_ptr = column_pointers(mask, rows, m_row, cols, VEC)
            z, _sign, _known = load_tile(
                x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, EVEN
            )
            higher = inside & (z > best)
            best = tl.where(higher, z, best)
            which = tl.where(higher, cols[None, :], which)
        top = tl.max(best, axis=1)
        first = tl.min(tl.where(best == top[:, None], which, C), axis=1)
        rose = top > peak
        peak = tl.where(rose, top, peak)
        place = tl.where(rose, first, place)
        at = level * N + rows
        tl.store(peaks + at, peak, mask=here)
        tl.store(places + at, place, mask=here)


@triton.jit
def add_up(z, known, limit, MASKED: tl.constexpr, FAST: tl.constexpr):
    """Return three (B,) sums over the rows of a tile.

    The losses under the constraint but for a logarithm, what that is of, and the errors. With b the
    greater of z and its limit, softplus(b) = (b + |b|) / 2 + log(1 + exp(-|b|)), and the logarithms
    of several rows are one logarithm of a product.
    """
    # A maximum that propagates NaN, so that a diverged network shows in the loss.
    bound = tl.maximum(z, limit, propagate_nan=tl.PropagateNan.ALL)
    if MASKED:
        bound = tl.where(known, bound, LOWEST)
    losses = 0.5 * tl.sum(bound + tl.abs(bound), axis=0)
    grown = tl.reduce(exp_minus(tl.abs(bound), FAST), 0, product_minus_1)
    errors = tl.sum(is_wrong(bound, FAST), axis=0)
    return losses, grown, errors


@triton.jit
def sum_classes(
    logits, targets, mask, bounds, tiles, peaks, partials, counts,
    N, C, height, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr,
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
            z, _sign, known = load_tile(x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, EVEN)
            at = (level - 1) * N + rows
            peak = tl.load(peaks + at, mask=here & (level > 0), other=LOWEST)
            peak = tl.maximum(peak, LOWEST)
            more, growth, wrong = add_up(z, known, peak[:, None], MASKED, FAST)
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
    N, C, height, L, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr,
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
        z, _sign, known = load_tile(x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, False)
        peak = tl.full([R], MINUS_INF, tl.float32)
        place = tl.zeros([R], tl.int32)
        limit = tl.full([R, B], LOWEST, tl.float32)  # the running maximum above each entry
        for level in range(L - 1):
            begin = tl.load(bounds + level)
            end = tl.load(bounds + level + 1)
            inside = ((cols >= begin) & (cols < end))[None, :]
            own = tl.where(inside, z, MINUS_INF)
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
        more, growth, wrong = add_up(z, known, limit, MASKED, FAST)
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
    factor, bound, C, x_row, y_row, m_row,
    MASKED: tl.constexpr, DEEPEST: tl.constexpr,
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
    kept = tl.where(z < peak[:, None], 0.0, own)
    bound += own - kept
    own = kept
    if not DEEPEST:
        own += tl.where(cols[None, :] == place[:, None], owed[:, None], 0.0)
    slope = inverse(1.0 + exp_minus(z, FAST), FAST)
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
    N, C, L, scale, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr,
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
            factor, bound, C, x_row, y_row, m_row,
            MASKED, True, R, B, VEC, FAST, EVEN,
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
                owed, factor, bound, C, x_row, y_row, m_row,
                MASKED, False, R, B, VEC, FAST, EVEN,
            )  # fmt: skip
        # An argmax in this level has received its weight; the rest goes further up.
        owed = tl.where(place >= begin, 0.0, owed) + tl.sum(bound, axis=1)


@triton.jit
def write_gradient_few(
    logits, targets, mask, bounds, peaks, places, gradient, weight, rows,
    N, C, L, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Write the gradient of rows whose classes fit one tile, given (B,) weights."""
    here = rows < N
    cols = tl.arange(0, B)
    x_ptr = column_pointers(logits, rows, x_row, cols, VEC)
    y_ptr = column_pointers(targets, rows, y_row, cols, VEC)
    m_ptr = column_pointers(mask, rows, m_row, cols, VEC)
    z, sign, known = load_tile(x_ptr, y_ptr, m_ptr, here, cols, C, MASKED, FAST, VEC, False)
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
        kept = tl.where(z < peak[:, None], 0.0, own)
        paid = inside & (cols[None, :] == place[:, None])
        due += kept + tl.where(paid, owed[:, None], 0.0)
        owed = tl.where(place >= begin, 0.0, owed) + tl.sum(own - kept, axis=1)
    slope = inverse(1.0 + exp_minus(z, FAST), FAST)
    at = column_pointers(gradient, rows, C, cols, VEC)
    tl.store(at, slope * due * sign, mask=here[:, None] & (cols // VEC < C // VEC)[None, :])


@triton.jit
def sweep_up_few(
    logits, targets, mask, bounds, peaks, places, weights, stats, upstream, gradient,
    N, C, L, scale, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr,
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
        N, C, L, x_row, y_row, m_row,
        MASKED, FAST, R, B, VEC,
    )  # fmt: skip


@triton.jit
def select_and_sweep_up_few(
    logits, targets, mask, bounds, peaks, places, gradient,
    partials, counts, threshold, sums, selected, weights, stats, loss,
    N, C, L, height, parts, row_count, scale, floor, entries, x_row, y_row, m_row,
    MASKED: tl.constexpr, FAST: tl.constexpr,
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
            N, C, L, x_row, y_row, m_row,
            MASKED, FAST, R, B, VEC,
        )  # fmt: skip


TRIALS = tl.constexpr(128)  # per round of the search, which settles 7 bits
LAST = tl.constexpr(4)  # the number of its last round, which settles 3 bits
LAST_TRIALS = tl.constexpr(8)  # of that round


@triton.jit
def sum_counts(counts, G, which: tl.constexpr):
    """Return the sum over the programs of the errors (0) or of the known entries (1)."""
    total = tl.zeros([1024], tl.int64)
    for first in range(0, G, 1024):
        numbers = first + tl.arange(0, 1024)
        total += tl.load(counts + 2 * numbers + which, mask=numbers < G, other=0).to(tl.int64)
    return tl.sum(total, axis=0)


@triton.jit
def reduction_factor(counts, G, entries, MASKED: tl.constexpr, MEAN: tl.constexpr):
    """Return 1 over the divisor of the reduction."""
    share = 1.0
    if MEAN:
        known = entries
        if MASKED:
            known = sum_counts(counts, G, 1).to(tl.float32)
        share = 1.0 / tl.maximum(known, 1.0)
    return share


@triton.jit
def limit_of(errors, threshold, C, rows, BY_ROWS: tl.constexpr, FIXED: tl.constexpr):
    """Return C + e_h, or the threshold that replaces it."""
    limit = errors
    if BY_ROWS:
        limit = tl.div_rn(limit, rows)
    limit = (limit + C).to(tl.float64)
    if FIXED:
        limit = tl.load(threshold)
    return limit


@triton.jit
def class_values(sums, inside, rows, BY_ROWS: tl.constexpr):
    """Return the losses that are compared, in double precision, and their bits."""
    value = sums
    if BY_ROWS:
        value = tl.div_rn(sums, rows)
    bits = tl.where(inside, value.to(tl.int32, bitcast=True), 2147483647)
    return value.to(tl.float64), bits


@triton.jit
def reduce_sums(
    partials, counts, sums, stats, parts, G, C, scale, entries,
    MASKED: tl.constexpr, MEAN: tl.constexpr, BG: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Add the partial class sums up; write e_h and 1 over the divisor of the reduction to stats."""
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros([BG, BC], tl.float32)
    for first in range(0, parts, BG):
        numbers = first + tl.arange(0, BG)
        ok = (numbers < parts)[:, None] & (cols < C)[None, :]
        at = numbers.to(tl.int64)[:, None] * C + cols[None, :]
        total += tl.load(partials + at, mask=ok, other=0.0)
    tl.store(sums + cols, tl.sum(total, axis=0) * scale, mask=cols < C)
    if tl.program_id(0) == 0:
        tl.store(stats, sum_counts(counts, G, 0).to(tl.float32))
        tl.store(stats + 1, reduction_factor(counts, G, entries, MASKED, MEAN))


@triton.jit
def select_and_weigh(
    partials, counts, threshold, sums, selected, weights, stats, loss,
    parts, G, C, rows, scale, floor, entries, writes,
    MASKED: tl.constexpr, MEAN: tl.constexpr, BY_ROWS: tl.constexpr, FIXED: tl.constexpr,
    BG: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sums, e_h, selection, weights and loss of few classes, 3 bits of the bound per iteration.

    Several programs may do the same, if only one of them ``writes``. Returns the weights (BC,) and
    1 over the divisor of the reduction.
    """
    cols = tl.arange(0, BC)
    inside = cols < C
    total = tl.zeros([BC], tl.float32)
    for first in range(0, parts, BG):
        numbers = first + tl.arange(0, BG)
        ok = (numbers < parts)[:, None] & inside[None, :]
        part = tl.load(partials + numbers[:, None] * C + cols[None, :], mask=ok, other=0.0)
        total += tl.sum(part, axis=0)
    total *= scale
    errors = sum_counts(counts, G, 0).to(tl.float32)
    share = reduction_factor(counts, G, entries, MASKED, MEAN)
    limit = limit_of(errors, threshold, C, rows, BY_ROWS, FIXED)
    value, bits = class_values(total, inside, rows, BY_ROWS)
    counted = value + 1.0  # the sum of the losses and their number together
    bound = 0
    for step in range(11):
        trials = bound + (tl.arange(0, 8) << tl.maximum(28 - 3 * step, 0))
        # One column per trial: a thread adds up most of the losses on its own.
        low = bits[:, None] < trials[None, :]
        amounts = tl.sum(tl.where(low, counted[:, None], 0.0), axis=0)
        bound = tl.max(tl.where((amounts <= limit + 1.0) | (amounts == 0.0), trials, bound), axis=0)
    low = bits < bound
    amount = tl.sum(tl.where(low, value, 0.0), axis=0)
    number = tl.sum(low.to(tl.int32), axis=0)
    ties = bits == bound
    rank = tl.cumsum(ties.to(tl.int32), axis=0)
    tied = tl.where(ties, value, 0.0)
    reached = amount + rank.to(tl.float64) * tied + (number + rank - 1)
    chosen = inside & (low | (ties & (reached <= limit)))
    weight = tl.where(chosen, 1.0, floor)
    if writes:
        # 0 times the infinite loss of an unselected class is 0; NaN always shows.
        used = tl.where((weight > 0) | (total != total), total, 0.0).to(tl.float64) * weight
        tl.store(sums + cols, total, mask=inside)
        tl.store(selected + cols, chosen, mask=inside)
        tl.store(weights + cols, weight, mask=inside)
        tl.store(stats, errors)
        tl.store(stats + 1, share)
        tl.store(loss, (tl.sum(used, axis=0) * share).to(tl.float32))
    return weight, share


@triton.jit
def select_few(
    partials, counts, threshold, sums, selected, weights, stats, loss,
    parts, G, C, rows, scale, floor, entries,
    MASKED: tl.constexpr, MEAN: tl.constexpr, BY_ROWS: tl.constexpr, FIXED: tl.constexpr,
    BG: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """``select_and_weigh`` as a kernel of one program."""
    select_and_weigh(
        partials, counts, threshold, sums, selected, weights, stats, loss,
        parts, G, C, rows, scale, floor, entries, True,
        MASKED, MEAN, BY_ROWS, FIXED, BG, BC,
    )  # fmt: skip


@triton.jit
def shift_of(round_number):
    """Return the lowest bit of a round."""
    return tl.maximum(24 - 7 * round_number, 0)


@triton.jit
def round_result(
    amounts, numbers, bounds, round_number, limit, CHUNKS: tl.constexpr, FINAL: tl.constexpr
):  # fmt: skip
    """Return the bound after a round of the search, and its trial.

    After the FINAL round, also the sum and the number of the losses below the bound.
    """
    at = tl.arange(0, CHUNKS)[:, None] * TRIALS + tl.arange(0, TRIALS)[None, :]
    trial = tl.arange(0, TRIALS)
    number = tl.zeros([TRIALS], tl.int32)
    if FINAL:
        tried = (trial <= LAST_TRIALS)[None, :]
        amount = tl.sum(tl.load(amounts + at, mask=tried, other=0.0), axis=0)
        number = tl.sum(tl.load(numbers + at, mask=tried, other=0), axis=0)
        fits = ((number == 0) | (amount + (number - 1) <= limit)) & (trial < LAST_TRIALS)
    else:
        at += (round_number % 2) * CHUNKS * TRIALS
        amount = tl.sum(tl.load(amounts + at), axis=0)
        fits = (amount == 0.0) | (amount <= limit + 1.0)
    best = tl.max(tl.where(fits, trial, 0), axis=0)
    bound = tl.load(bounds + round_number) + (best << shift_of(round_number))
    amount = tl.sum(tl.where(trial == best, amount, 0.0), axis=0)
    number = tl.sum(tl.where(trial == best, number, 0), axis=0)
    return bound, best, amount, number


@triton.jit(do_not_specialize=["round_number"])
def search_round(
    sums, stats, threshold, amounts, numbers, bounds, totals, round_number, C, chunk, rows,
    BY_ROWS: tl.constexpr, FIXED: tl.constexpr, CHUNKS: tl.constexpr,
    BK: tl.constexpr, GROUP: tl.constexpr, FINAL: tl.constexpr,
):  # fmt: skip
    """One round of the search: (CHUNKS, TRIALS) amounts of losses below each trial.

    An amount is the sum of the losses and their number together; the FINAL round keeps them apart.
    """
    limit = limit_of(tl.load(stats), threshold, C, rows, BY_ROWS, FIXED)
    bound = 0
    if round_number > 0:
        bound, _best, _amount, _number = round_result(
            amounts, numbers, bounds, round_number - 1, limit, CHUNKS, False
        )
    program = tl.program_id(0)
    mine = tl.program_id(1) * GROUP + tl.arange(0, GROUP)
    trials = bound + (mine << shift_of(round_number))
    amount = tl.zeros([BK, GROUP], tl.float64)
    number = tl.zeros([BK, GROUP], tl.int32)
    total = tl.zeros([BK], tl.float64)
    end = tl.minimum(program * chunk + chunk, C)
    for first in range(program * chunk, end, BK):
        cols = first + tl.arange(0, BK)
        loss = tl.load(sums + cols, mask=cols < end, other=0.0)
        value, bits = class_values(loss, cols < end, rows, BY_ROWS)
        low = bits[:, None] < trials[None, :]
        if FINAL:
            total += loss.to(tl.float64)
            number += low.to(tl.int32)
        else:
            value += 1.0
        amount += tl.where(low, value[:, None], 0.0)
    at = ((round_number % 2) * CHUNKS + program) * TRIALS + mine
    tl.store(amounts + at, tl.sum(amount, axis=0))
    if FINAL:
        tl.store(numbers + program * TRIALS + mine, tl.sum(number, axis=0))
        tl.store(totals + program, tl.sum(total, axis=0))
    if (tl.program_id(1) == 0) & (program == 0):
        tl.store(bounds + round_number, bound)


@triton.jit
def finish_search(
    sums, stats, threshold, amounts, numbers, bounds, totals, selected, weights, loss,
    C, chunk, rows, floor,
    BY_ROWS: tl.constexpr, FIXED: tl.constexpr, CHUNKS: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Select and weigh after the last round of the search; the first program writes the loss."""
    limit = limit_of(tl.load(stats), threshold, C, rows, BY_ROWS, FIXED)
    bound, best, amount, number = round_result(amounts, numbers, bounds, LAST, limit, CHUNKS, True)
    program = tl.program_id(0)
    # The last round tried neighboring bits: the ties of a chunk lie between two of its trials.
    chunks = tl.arange(0, CHUNKS)
    at = chunks * TRIALS + best
    ties = tl.maximum(tl.load(numbers + at + 1) - tl.load(numbers + at), 0)
    rank = tl.sum(tl.where(chunks < program, ties, 0), axis=0)
    end = tl.minimum(program * chunk + chunk, C)
    for first in range(program * chunk, end, BK):
        cols = first + tl.arange(0, BK)
        inside = cols < end
        value, bits = class_values(
            tl.load(sums + cols, mask=inside, other=0.0), inside, rows, BY_ROWS
        )
        tied = bits == bound
        place = rank + tl.cumsum(tied.to(tl.int32), axis=0)
        value = tl.where(tied, value, 0.0)
        reached = amount + place.to(tl.float64) * value + (number + place - 1)
        chosen = inside & ((bits < bound) | (tied & (reached <= limit)))
        tl.store(selected + cols, chosen, mask=inside)
        tl.store(weights + cols, tl.where(chosen, 1.0, floor), mask=inside)
        rank += tl.sum(tied.to(tl.int32), axis=0)
    if program == 0:
        # Of the ties, the most that fit: the quotient may be off by one rounding.
        value = bound.to(tl.float32, bitcast=True)
        finite = value < float("inf")  # else nothing fits, or there are no ties
        most = tl.where(finite, tl.sum(ties, axis=0), 0)
        value = tl.where(finite, value, 0.0).to(tl.float64)
        fit = tl.minimum((limit - amount - (number - 1)) / (value + 1.0) + 1.0, most + 0.0)
        taken = tl.maximum(fit, 0.0).to(tl.int32)
        reached = amount + taken.to(tl.float64) * value + (number + taken - 1)
        taken -= ((taken > 0) & (reached > limit)).to(tl.int32)
        chosen_sum = amount + taken.to(tl.float64) * value
        if BY_ROWS:
            chosen_sum *= rows
        total = tl.sum(tl.load(totals + chunks), axis=0)
        # 0 times the infinite loss of an unselected class is 0; NaN always shows.
        total = tl.where((floor > 0) | (total != total), total, 0.0)
        used = chosen_sum * (1.0 - floor) + total * floor
        tl.store(loss, (used * tl.load(stats + 1)).to(tl.float32))
