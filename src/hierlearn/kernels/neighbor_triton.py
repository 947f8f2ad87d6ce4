# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of the neighbor head that go over rows times candidates.

``units`` are those of ``neighbor_rows_triton.write_units``.

A tile is ROWS x COLS entries of the batch and of the candidates, which are sorted by label set.
Inner products are those of float16 parts: with a power of 2 as factor, a number is the sum of two
float16 numbers up to 2^-22 of it, and

    a b = a_hi b_hi + a_hi b_lo + a_lo b_hi

is as accurate as a float32 product, three times as fast as one. Logits are in units of log 2:

    l = (log weight - d / scale) log2(e)

A run is a maximal range of candidates of one label set within a tile. No tile leaves the chip but
as the sums of its runs, or as what the two matmuls of the gradient read. Rows come in blocks, so
that what is indexed by rows and columns has fewer than 2^31 entries.
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
