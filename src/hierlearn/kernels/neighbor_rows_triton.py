# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of the neighbor head that go over rows, or over candidates."""

import triton
import triton.language as tl

MINUS_INF = tl.constexpr(float("-inf"))
LOW_BITS = tl.constexpr(2048.0)  # as in neighbor_triton.py
LOG2_E = tl.constexpr(1.4426950408889634)
HIGHEST = tl.constexpr(8)  # the exponent of the largest number that is split into parts
SQUARED = tl.constexpr(0)
EUCLIDEAN = tl.constexpr(1)


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
