# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc,no-any-return"
"""The Triton kernels of the neighbor head that go over rows times label sets, or times classes.

    mass_s = sum over the runs of set s,         total = sum over all sets
    p_c    = sum over sets with c of mass / total
    p'     = (1 - 2e) p + e,                     q' = (1 - 2e) (1 - p) + e

Classes are summed in double precision: 1 - p is a difference.
"""

import triton
import triton.language as tl

from hierlearn.kernels.neighbor_rows_triton import exponent_of, power_of_2

MINUS_INF = tl.constexpr(float("-inf"))
ROUNDING = tl.constexpr(1e-6)  # of a smoothed probability, at most


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
