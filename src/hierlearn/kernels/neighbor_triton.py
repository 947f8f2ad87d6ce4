# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of the neighbor head.

**Rows times candidates.** ``units`` are those of ``write_units``. A tile is ROWS x COLS entries of
the batch and of the candidates, which are sorted by label set. Inner products are those of float16
parts: with a power of 2 as factor, a number is the sum of two float16 numbers up to 2^-22 of it,
and

    a b = a_hi b_hi + a_hi b_lo + a_lo b_hi

is as accurate as a float32 product, three times as fast as one. Logits are in units of log 2:

    l = (log weight - d / scale) log2(e)

A run is a maximal range of candidates of one label set within a tile. No tile leaves the chip but
as the sums of its runs, or as what the two matmuls of the gradient read. Rows come in blocks, so
that what is indexed by rows and columns has fewer than 2^31 entries.

**Rows times label sets, or times classes.**

    mass_s = sum over the runs of set s,         total = sum over all sets
    p_c    = sum over sets with c of mass / total
    p'     = (1 - 2e) p + e,                     q' = (1 - 2e) (1 - p) + e

Classes are summed in double precision: 1 - p is a difference.
"""

import triton
import triton.language as tl

MINUS_INF = tl.constexpr(float("-inf"))
TINY = tl.constexpr(1e-12)  # as in memory/distance.py
LOW_BITS = tl.constexpr(2048.0)  # 2^11: the low part of a number is multiplied by it
RAISED = tl.constexpr(32768.0)  # 2^15: what exp(0) is in float16
LARGEST = tl.constexpr(60000.0)  # below the largest float16 number
LOG2_E = tl.constexpr(1.4426950408889634)
SQUARED = tl.constexpr(0)
EUCLIDEAN = tl.constexpr(1)
HIGHEST = tl.constexpr(8)  # the exponent of the largest number that is split into parts
ROUNDING = tl.constexpr(1e-6)  # of a smoothed probability, at most


@triton.jit
def inner_products(
    a, b, row, col,
    DP: tl.constexpr, PRODUCTS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Return (ROWS, COLS) inner products of two matrices of parts."""
    depth = tl.arange(0, DEPTH)
    a_at = a + tl.cast(row, tl.int64)[:, None] * (2 * DP) + depth[None, :]
    b_at = b + tl.cast(col, tl.int64)[None, :] * (2 * DP) + depth[:, None]
    total = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(0, DP, DEPTH):
        a_high = tl.load(a_at + start)
        b_high = tl.load(b_at + start)
        if PRODUCTS == 3:
            a_low = tl.load(a_at + DP + start)
            b_low = tl.load(b_at + DP + start)
            total = tl.dot(a_low, b_high, total)
            total = tl.dot(a_high, b_low, total)
        total = tl.dot(a_high, b_high, total)
    return total


@triton.jit
def distances(total, a_norms, b_norms, units, row, col, KIND: tl.constexpr):
    """Return the distances of a tile, and their squares before the square root."""
    inner = total * tl.load(units)
    if (KIND == SQUARED) | (KIND == EUCLIDEAN):
        lengths = tl.load(a_norms + row)[:, None] + tl.load(b_norms + col)[None, :]
        square = tl.maximum(lengths - 2.0 * inner, 0.0, propagate_nan=tl.PropagateNan.ALL)
        distance = square
        if KIND == EUCLIDEAN:
            distance = tl.sqrt(tl.maximum(square, TINY, propagate_nan=tl.PropagateNan.ALL))
    else:
        square = 1.0 - inner
        distance = tl.maximum(square, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return distance, square


@triton.jit
def log_weights(distance, bias, row_keys, keys, units, row, col, KEYED: tl.constexpr):
    """Return the logits of a tile, minus infinity where a candidate is the row itself."""
    logits = tl.load(bias + col)[None, :] - distance * tl.load(units + 1)
    if KEYED:
        same = tl.load(row_keys + row)[:, None] == tl.load(keys + col)[None, :]
        logits = tl.where(same, MINUS_INF, logits)
    return logits


@triton.jit
def sum_runs(
    a, b, a_norms, b_norms, bias, row_keys, keys, run, units, sums, peaks,
    rows, row_tiles, runs, tiles,
    DP: tl.constexpr, KIND: tl.constexpr, KEYED: tl.constexpr, PRODUCTS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write the largest logit of every row of a tile, and the sums of its runs relative to it."""
    place = tl.program_id(0)
    row = place % row_tiles * ROWS + tl.arange(0, ROWS)
    tile = place // row_tiles
    col = tile * COLS + tl.arange(0, COLS)
    total = inner_products(a, b, row, col, DP, PRODUCTS, ROWS, COLS, DEPTH)
    distance, _ = distances(total, a_norms, b_norms, units, row, col, KIND)
    logits = log_weights(distance, bias, row_keys, keys, units, row, col, KEYED)
    peak = tl.max(logits, axis=1)
    inside = row < rows
    tl.store(peaks + (row * tiles + tile), peak, mask=inside)
    peak = tl.where(peak == MINUS_INF, 0.0, peak)
    value = tl.exp2(logits - peak[:, None]) * RAISED
    # Summed by run as a matmul with an indicator matrix.
    first = tl.load(run + tile * COLS) - 1
    number = tl.load(run + col) - 1 - first
    numbers = tl.arange(0, COLS)
    belongs = number[:, None] == numbers[None, :]
    high = value.to(tl.float16)
    low = ((value - high.to(tl.float32)) * LOW_BITS).to(tl.float16)
    total = tl.dot(low, tl.where(belongs, 1.0 / LOW_BITS, 0.0).to(tl.float16))
    total = tl.dot(high, tl.where(belongs, 1.0, 0.0).to(tl.float16), total)
    last = tl.max(number, axis=0)
    out = sums + (row[:, None] * runs + (first + numbers)[None, :])
    tl.store(out, total / RAISED, mask=inside[:, None] & (numbers <= last)[None, :])


@triton.jit
def pair_gradients(
    a, b, a_norms, b_norms, bias, row_keys, keys, sets, units, peak, given, inverse,
    parts, row_sums, col_sums, bias_sums, scale_sums,
    rows, row_tiles, number_of_sets, begin, width, tiles, padded,
    DP: tl.constexpr, KIND: tl.constexpr, KEYED: tl.constexpr, PRODUCTS: tl.constexpr,
    SCALE: tl.constexpr, BIAS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the logits of a tile as float16 parts, and their sums.

    ``given`` (rows, sets) is what a candidate of each set gets per unit of exp(l - peak), times a
    factor of its row, whose inverse is ``inverse``. With Euclidean distances, what is written is
    further divided by 2 d, in units of ``units[2]``.
    """
    place = tl.program_id(0)
    row_tile = place % row_tiles
    row = row_tile * ROWS + tl.arange(0, ROWS)
    tile = begin // COLS + place // row_tiles
    col = tile * COLS + tl.arange(0, COLS)
    total = inner_products(a, b, row, col, DP, PRODUCTS, ROWS, COLS, DEPTH)
    distance, square = distances(total, a_norms, b_norms, units, row, col, KIND)
    logits = log_weights(distance, bias, row_keys, keys, units, row, col, KEYED)
    highest = tl.load(peak + row)
    value = tl.exp2(logits - highest[:, None])
    own = tl.load(sets + col)
    inside = (row < rows)[:, None] & (own >= 0)[None, :]
    at = row[:, None] * number_of_sets + own[None, :]
    factor = tl.load(given + at, mask=inside, other=0.0)
    value = tl.where(inside, value * factor, 0.0)
    lower = tl.load(inverse + row)[:, None]
    if SCALE:  # relative to about the least distance: the gradients of a row sum to 0
        beyond = distance + (highest / tl.load(units + 1))[:, None]
        sums = tl.sum(value * beyond * lower, axis=1)
        tl.store(scale_sums + row_tile * tiles + tile, tl.sum(sums, axis=0))
    long_tile = tl.cast(row_tile, tl.int64)
    if BIAS:
        tl.store(bias_sums + long_tile * padded + col, tl.sum(value * lower, axis=0))
    if KIND == EUCLIDEAN:
        share = tl.minimum(tl.load(units + 2) / (2.0 * distance), LARGEST / 4.0)
        value = tl.where(square < TINY, 0.0, value * share)
        tl.store(row_sums + (row * tiles + tile), tl.sum(value * lower, axis=1))
    if (KIND == SQUARED) | (KIND == EUCLIDEAN):
        tl.store(col_sums + long_tile * padded + col, tl.sum(value * lower, axis=0))
    else:
        value = tl.where(square < 0.0, 0.0, value)
    high = value.to(tl.float16)
    at = row[:, None] * width + (col - begin)[None, :]
    out = parts + at
    tl.store(out, high)
    if PRODUCTS == 3:
        low = ((value - high.to(tl.float32)) * LOW_BITS).to(tl.float16)
        plane = row_tiles * ROWS * width
        tl.store(out + plane, low)
        tl.store(out + 2 * plane, high)


@triton.jit
def exponent_of(x):
    """Return e for x in [2^(e - 1), 2^e)."""
    return ((tl.cast(x, tl.int32, bitcast=True) >> 23) & 255) - 126


@triton.jit
def power_of_2(power):
    """Return 2^power, for powers of -126 to 127."""
    return tl.cast((power + 127) << 23, tl.float32, bitcast=True)


@triton.jit
def factor_of(largest, CENTERED: tl.constexpr):
    """Return the power of 2 by which numbers fit into float16; NaN where they are not finite."""
    exponent = exponent_of(largest)
    power = HIGHEST - exponent
    if CENTERED:  # the center is no larger than that
        power -= 1
    power = tl.minimum(tl.maximum(power, -60), 60)
    return tl.where(exponent > 128, largest - largest, power_of_2(power))  # inf - inf is NaN


@triton.jit
def write_units(largest_row, largest, scale, units, CENTERED: tl.constexpr):
    """Write the units of inner products, of distances in logits, and of 1 / (2 d).

    Then the factors of rows and of candidates.
    """
    own = tl.load(largest_row)
    most = tl.load(largest)
    if CENTERED:  # the center may be as large as the largest candidate; NaN stays
        own = tl.where(own < most, most, own)
    by_row = factor_of(own, CENTERED)
    by = factor_of(most, CENTERED)
    tl.store(units, 1.0 / (by_row * by))
    tl.store(units + 1, 1.0 / tl.load(scale) * LOG2_E)
    tl.store(units + 2, power_of_2(tl.minimum(tl.maximum(exponent_of(own), -60), 60)))
    tl.store(units + 3, by_row)
    tl.store(units + 4, by)


@triton.jit
def mark_runs(
    sets, order, keys, weight, begins, sets_out, keys_out, bias,
    count, padded,
    KEYED: tl.constexpr, WEIGHTED: tl.constexpr, COLS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write where runs begin among sorted candidates, and what else belongs to each."""
    place = tl.program_id(0) * B + tl.arange(0, B)
    known = place < count
    inside = place < padded
    own = tl.load(sets + place, mask=known, other=-1)
    before = tl.load(sets + place - 1, mask=known & (place > 0), other=-1)
    starts = known & ((own != before) | (place % COLS == 0))
    tl.store(begins + place, starts.to(tl.int32), mask=inside)
    tl.store(sets_out + place, own.to(tl.int32), mask=inside)
    source = tl.load(order + place, mask=known, other=0)
    if KEYED:
        key = tl.load(keys + source, mask=known, other=0).to(tl.int32)
        tl.store(keys_out + place, key, mask=inside)
    value = tl.zeros([B], tl.float32)
    if WEIGHTED:
        value = tl.load(weight + source, mask=known, other=0.0) * LOG2_E
    tl.store(bias + place, tl.where(known, value, MINUS_INF), mask=inside)


@triton.jit
def place_runs(
    sets, begins, run, run_begin, run_end, run_tile,
    count,
    COLS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write the runs of every set, from 0, and the tile of every run."""
    place = tl.program_id(0) * B + tl.arange(0, B)
    known = place < count
    own = tl.load(sets + place, mask=known, other=-1)
    number = tl.load(run + place, mask=known, other=1)
    starts = known & (tl.load(begins + place, mask=known, other=0) > 0)
    tl.store(run_tile + number - 1, place // COLS, mask=starts)
    before = tl.load(sets + place - 1, mask=known & (place > 0), other=-1)
    after = tl.load(sets + place + 1, mask=place + 1 < count, other=-1)
    tl.store(run_begin + own, number - 1, mask=known & (own != before))
    tl.store(run_end + own, number, mask=known & (own != after))


@triton.jit
def split_rows(
    x, order, center, factor, parts, norms,
    count, padded, D,
    DP: tl.constexpr, ORDERED: tl.constexpr, CENTERED: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write rows as float16 parts, hi and then lo, and their squared norms; rows that pad are 0."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    known_row = row < count
    source = row
    if ORDERED:
        source = tl.load(order + row, mask=known_row, other=0)
    by = tl.load(factor)
    total = tl.zeros([R], tl.float32)
    for start in range(0, DP, B):
        cols = start + tl.arange(0, B)
        known = known_row[:, None] & (cols < D)[None, :]
        at = tl.cast(source, tl.int64)[:, None] * D + cols[None, :]
        value = tl.load(x + at, mask=known, other=0.0)
        if CENTERED:
            value -= tl.load(center + cols, mask=cols < D, other=0.0)[None, :]
        value = tl.where(known, value * by, 0.0)
        high = value.to(tl.float16)
        low = (value - high.to(tl.float32)).to(tl.float16)
        out = parts + tl.cast(row, tl.int64)[:, None] * (2 * DP) + cols[None, :]
        inside = (row < padded)[:, None] & (cols < DP)[None, :]
        tl.store(out, high, mask=inside)
        tl.store(out + DP, low, mask=inside)
        value = high.to(tl.float32) + low.to(tl.float32)
        total += tl.sum(value * value, axis=1)
    tl.store(norms + row, total / by / by, mask=row < padded)


@triton.jit
def weigh_rows(
    parts, inverse, largest, out,
    padded,
    DP: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write rows times inverse / largest as three float16 matrices: hi, hi / 2^11 and lo."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    by = tl.load(inverse + row, mask=row < padded, other=0.0) / tl.load(largest)
    long = tl.cast(row, tl.int64)[:, None]
    plane = tl.cast(padded, tl.int64) * DP
    for start in range(0, DP, B):
        cols = start + tl.arange(0, B)[None, :]
        inside = (row < padded)[:, None] & (cols < DP)
        at = parts + long * (2 * DP) + cols
        value = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        value += tl.load(at + DP, mask=inside, other=0.0).to(tl.float32)
        value *= by[:, None]
        high = value.to(tl.float16)
        to = out + long * DP + cols
        tl.store(to, high, mask=inside)
        tl.store(to + plane, (high.to(tl.float32) / LOW_BITS).to(tl.float16), mask=inside)
        low = value - high.to(tl.float32)
        tl.store(to + 2 * plane, low.to(tl.float16), mask=inside)


@triton.jit
def change_of(units, scale, KIND: tl.constexpr):
    """Return the derivative of a logit by an inner product, in the units of what was stored."""
    change = 1.0 / tl.load(scale)
    if (KIND == SQUARED) | (KIND == EUCLIDEAN):
        change *= 2.0
    if KIND == EUCLIDEAN:
        change /= tl.load(units + 2)
    return change


@triton.jit
def finish_rows(
    found, parts, sums, inverse, units, scale, out,
    count, plane, D,
    DP: tl.constexpr, KIND: tl.constexpr, PRODUCTS: tl.constexpr,
    R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write the gradients of rows, given the products of what candidates get with their parts."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    change = change_of(units, scale, KIND)
    long = tl.cast(row, tl.int64)[:, None]
    lower = tl.load(inverse + row, mask=row < count, other=0.0)[:, None]
    for start in range(0, D, B):
        cols = start + tl.arange(0, B)[None, :]
        known = (row < count)[:, None] & (cols < D)
        if PRODUCTS == 3:
            at = found + long * (2 * DP) + cols
            value = tl.load(at, mask=known, other=0.0) + tl.load(at + DP, mask=known, other=0.0)
            at += tl.cast(plane, tl.int64) * (2 * DP)
            rest = tl.load(at, mask=known, other=0.0) + tl.load(at + DP, mask=known, other=0.0)
            value += rest / LOW_BITS
        else:
            value = tl.load(found + long * DP + cols, mask=known, other=0.0)
        value *= lower / tl.load(units + 4)
        if KIND == EUCLIDEAN:
            at = parts + long * (2 * DP) + cols
            x = tl.load(at, mask=known, other=0.0).to(tl.float32)
            x += tl.load(at + DP, mask=known, other=0.0).to(tl.float32)
            own = tl.load(sums + row, mask=row < count, other=0.0)[:, None]
            value -= own * x / tl.load(units + 3)
        tl.store(out + long * D + cols, value * change, mask=known)


@triton.jit
def finish_candidates(
    found, parts, sums, order, largest, units, scale, out,
    count, D,
    DP: tl.constexpr, KIND: tl.constexpr, R: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write the gradients of candidates where they were before they were sorted."""
    row = tl.program_id(0) * R + tl.arange(0, R)
    change = change_of(units, scale, KIND)
    long = tl.cast(row, tl.int64)[:, None]
    target = tl.cast(tl.load(order + row, mask=row < count, other=0), tl.int64)[:, None]
    by = tl.load(largest) / tl.load(units + 3)
    for start in range(0, D, B):
        cols = start + tl.arange(0, B)[None, :]
        known = (row < count)[:, None] & (cols < D)
        value = tl.load(found + long * DP + cols, mask=known, other=0.0) * by
        if (KIND == SQUARED) | (KIND == EUCLIDEAN):
            at = parts + long * (2 * DP) + cols
            x = tl.load(at, mask=known, other=0.0).to(tl.float32)
            x += tl.load(at + DP, mask=known, other=0.0).to(tl.float32)
            own = tl.load(sums + row, mask=row < count, other=0.0)[:, None]
            value -= own * x / tl.load(units + 4)
        tl.store(out + target * D + cols, value * change, mask=known)


@triton.jit
def sum_sets(
    sums, peaks, run_begin, run_end, run_tile, masses, peak, total,
    runs, tiles, sets,
    SETS: tl.constexpr, RUNS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write the mass of every set of one row, relative to its largest logit, and their total."""
    row = tl.cast(tl.program_id(0), tl.int64)
    best = tl.full([B], MINUS_INF, tl.float32)
    for start in range(0, tiles, B):
        tile = start + tl.arange(0, B)
        known = tile < tiles
        own = tl.load(peaks + row * tiles + tile, mask=known, other=MINUS_INF)
        best = tl.maximum(best, own)
    largest = tl.max(best, axis=0)
    largest = tl.where(largest == MINUS_INF, 0.0, largest)
    tl.store(peak + row, largest)
    whole = tl.zeros([SETS], tl.float64)
    for start in range(0, sets, SETS):
        number = start + tl.arange(0, SETS)
        known = number < sets
        begin = tl.load(run_begin + number, mask=known, other=0)
        count = tl.load(run_end + number, mask=known, other=0) - begin
        mass = tl.zeros([SETS], tl.float32)
        for place in range(0, tl.max(count, axis=0), RUNS):
            step = place + tl.arange(0, RUNS)
            here = step[None, :] < count[:, None]
            run = begin[:, None] + step[None, :]
            value = tl.load(sums + row * runs + run, mask=here, other=0.0)
            tile = tl.load(run_tile + run, mask=here, other=0)
            own = tl.load(peaks + row * tiles + tile, mask=here, other=MINUS_INF)
            mass += tl.sum(tl.where(here, value * tl.exp2(own - largest), 0.0), axis=1)
        tl.store(masses + row * sets + number, mass, mask=known)
        whole += mass.to(tl.float64)
    tl.store(total + row, tl.sum(whole, axis=0))


@triton.jit
def write_answers(mass, whole, log_p, log_not_p, at, mask, smoothing):
    """Write log p' and log q' of classes of this mass."""
    known = tl.where(whole == 0.0, 1.0, whole)  # without any candidate, no class applies
    p = mass / known
    q = tl.where(mass > known, 0.0, (known - mass) / known)
    left = 1.0 - 2.0 * smoothing
    tl.store(log_p + at, tl.log((left * p + smoothing).to(tl.float32)), mask=mask)
    tl.store(log_not_p + at, tl.log((left * q + smoothing).to(tl.float32)), mask=mask)


@triton.jit
def sum_classes(
    masses, total, offsets, members, log_p, log_not_p,
    sets, classes, smoothing,
    LIGHT: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write the answers of the classes of up to LIGHT sets, of one row and one block."""
    row = tl.cast(tl.program_id(1), tl.int64)
    cls = tl.program_id(0) * B + tl.arange(0, B)
    known = cls < classes
    begin = tl.load(offsets + cls, mask=known, other=0)
    count = tl.load(offsets + cls + 1, mask=known, other=0) - begin
    light = known & (count <= LIGHT)
    count = tl.where(light, count, 0)
    mass = tl.zeros([B], tl.float64)
    for place in range(0, tl.max(count, axis=0)):
        here = place < count
        member = tl.load(members + begin + place, mask=here, other=0)
        mass += tl.load(masses + row * sets + member, mask=here, other=0.0).to(tl.float64)
    at = row * classes + cls
    write_answers(mass, tl.load(total + row), log_p, log_not_p, at, light, smoothing)


@triton.jit
def sum_heavy_classes(
    masses, total, offsets, members, heavy, log_p, log_not_p,
    sets, classes, smoothing,
    B: tl.constexpr,
):  # fmt: skip
    """Write the answer of one class of many sets, of one row."""
    row = tl.cast(tl.program_id(1), tl.int64)
    cls = tl.load(heavy + tl.program_id(0))
    begin = tl.load(offsets + cls)
    end = tl.load(offsets + cls + 1)
    found = tl.zeros([B], tl.float64)
    for start in range(begin, end, B):
        place = start + tl.arange(0, B)
        member = tl.load(members + place, mask=place < end, other=0)
        value = tl.load(masses + row * sets + member, mask=place < end, other=0.0)
        found += value.to(tl.float64)
    mass = tl.sum(found, axis=0)
    whole = tl.load(total + row)
    write_answers(mass, whole, log_p, log_not_p, row * classes + cls, cls >= 0, smoothing)


@triton.jit
def class_gradients(
    log_p, log_not_p, grad_p, grad_not_p, out, means, bounds,
    classes, smoothing,
    HAS_P: tl.constexpr, HAS_NOT_P: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write the gradient g of the classes' p of one row, its mean under p, and twice a bound.

    No candidate gets more than sum |g| min(p, 1 - p), times 2. Where p is near 1, g can be large
    and its mean nearly as large, so both are in double precision, and p is 1 - (1 - p).
    """
    row = tl.cast(tl.program_id(0), tl.int64)
    left = 1.0 - 2.0 * smoothing
    mean = tl.zeros([B], tl.float64)
    bound = tl.zeros([B], tl.float32)
    for start in range(0, classes, B):
        cls = start + tl.arange(0, B)
        known = cls < classes
        at = row * classes + cls
        p = tl.exp(tl.load(log_p + at, mask=known, other=0.0))
        q = tl.exp(tl.load(log_not_p + at, mask=known, other=0.0))
        value = tl.zeros([B], tl.float32)
        if HAS_P:
            value += tl.load(grad_p + at, mask=known, other=0.0) * left / p
        if HAS_NOT_P:
            value -= tl.load(grad_not_p + at, mask=known, other=0.0) * left / q
        tl.store(out + at, value, mask=known)
        rounding = ROUNDING * tl.minimum(p, q)  # what is lost where p or 1 - p is smoothed
        p = tl.maximum((p - smoothing) / left, 0.0)
        q = tl.maximum((q - smoothing) / left, 0.0)
        bound += tl.where(known, tl.abs(value) * (tl.minimum(p, q) + rounding), 0.0)
        exact = tl.where(p < q, p.to(tl.float64), 1.0 - q.to(tl.float64))
        mean += tl.where(known, value.to(tl.float64) * exact, 0.0)
    tl.store(means + row, tl.sum(mean, axis=0))
    tl.store(bounds + row, 2.0 * tl.sum(bound, axis=0))


@triton.jit
def set_gradients(
    gradients, means, bounds, total, offsets, members, out, inverse,
    sets, classes,
    HIGHEST: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Write what each set gets, times a factor of the row, and the inverse of that.

    It is the sum of g over the classes of the set, less its mean, over the total of the masses. The
    factor is a power of 2, so that no candidate gets more than 2^HIGHEST.
    """
    row = tl.cast(tl.program_id(1), tl.int64)
    number = tl.program_id(0) * B + tl.arange(0, B)
    known = number < sets
    begin = tl.load(offsets + number, mask=known, other=0)
    count = tl.load(offsets + number + 1, mask=known, other=0) - begin
    value = tl.zeros([B], tl.float64)
    for place in range(0, tl.max(count, axis=0)):
        here = place < count
        member = tl.load(members + begin + place, mask=here, other=0)
        one = tl.load(gradients + row * classes + member, mask=here, other=0.0)
        value += one.to(tl.float64)
    power = HIGHEST - exponent_of(tl.load(bounds + row))
    power = tl.minimum(tl.maximum(power, -60), 60)
    if tl.program_id(0) == 0:
        tl.store(inverse + row, power_of_2(-power))
    whole = tl.load(total + row)
    value = (value - tl.load(means + row)) / tl.where(whole == 0.0, 1.0, whole)
    value *= power_of_2(power).to(tl.float64)
    tl.store(out + row * sets + number, value.to(tl.float32), mask=known)
