"""Linear SVMs by dual coordinate descent, for the CPU: 16 binary problems on the same rows at once.

For rows x_i with a constant column, sides y_ik = 1 or -1 and costs c_ik:

    minimize   |w_k|^2 / 2  +  sum over i of c_ik max(0, 1 - y_ik w_k x_i)^2    for every problem k

    w = sum over i of a_i y_i x_i,  a_i >= 0

One a_i at a time is moved to its optimum, in a new random order in every pass:

    g = y w x - 1 + a / (2 c),    a <- max(0, a - g / (|x|^2 + 1 / (2 c)))

Hsieh et al., "A dual coordinate descent method for large-scale linear SVM" (2008), which also gives
shrinking and the stopping rule. What is new here are the *lanes*: a column of X meets 16 weights
that lie side by side in one cache line, so that a row is read once for 16 problems, and arithmetic
is vectorized without changing the order of any sum. A lane never looks at another one, except that
all share the order of the rows and are verified together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16  # problems that are solved together: float32 weights of one cache line
ALL_LANES = (1 << LANES) - 1
F = np.float32
OPTIONS = {"nogil": True, "fastmath": {"contract", "nsz"}, "error_model": "numpy"}


def kernel(function: Any) -> Any:
    """Decorate a kernel: without the GIL, compiled once per machine."""
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # no folder can be written
        return njit(**OPTIONS)(function)


def walk(context: Any, builder: Any, kinds: Any, given: Any, step: Any) -> None:
    """Emit a loop over the entries of a sparse row.

    The compiler does not vectorize such a loop by itself: it cannot know that ``lanes`` and the
    weights never overlap.

    Args:
        context: of the intrinsic, as the next two.
        builder: of the instructions.
        kinds: the types of what is given.
        given: lanes, w, columns, values, and the first and the last entry, as below.
        step: emits what is done with a value in all lanes, and where the weights of its column are.
    """
    arrays = list(zip(kinds, given, strict=True))[:4]
    of = [context.make_array(kind)(context, builder, one) for kind, one in arrays]
    lanes, w, columns, values = (one.data for one in of)
    number, wide = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
    pointer = builder.bitcast(lanes, wide.as_pointer())
    held = cgutils.alloca_once(builder, wide)
    builder.store(builder.load(pointer, align=4), held)
    with cgutils.for_range_slice(builder, given[4], given[5], number(1), number) as (entry, _):
        column = builder.zext(builder.load(builder.gep(columns, [entry])), number)
        place = builder.gep(w, [builder.mul(column, number(LANES))])
        value = builder.load(builder.gep(values, [entry]))
        one = builder.insert_element(wide(ir.Undefined), value, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
        every = builder.shuffle_vector(one, one, mask)
        step(held, builder.bitcast(place, wide.as_pointer()), every)
    builder.store(builder.load(held), pointer, align=4)


@intrinsic
def gather(_: Any, lanes: Any, w: Any, columns: Any, values: Any, begin: Any, end: Any) -> Any:  # noqa: ARG001
    """Add the weights of a row's columns, times its values, to ``lanes``."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        def step(held: Any, place: Any, value: Any) -> None:
            product = builder.fmul(value, builder.load(place, align=4), flags=("contract",))
            builder.store(builder.fadd(builder.load(held), product, flags=("contract",)), held)

        walk(context, builder, signature.args, given, step)
        return context.get_dummy_value()

    return types.void(lanes, w, columns, values, types.int64, types.int64), emit


@intrinsic
def spread(_: Any, lanes: Any, w: Any, columns: Any, values: Any, begin: Any, end: Any) -> Any:  # noqa: ARG001
    """Add ``lanes``, times the values of a row, to the weights of its columns."""

    def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        def step(held: Any, place: Any, value: Any) -> None:
            product = builder.fmul(value, builder.load(held), flags=("contract",))
            new = builder.fadd(builder.load(place, align=4), product, flags=("contract",))
            builder.store(new, place, align=4)

        walk(context, builder, signature.args, given, step)
        return context.get_dummy_value()

    return types.void(lanes, w, columns, values, types.int64, types.int64), emit


@kernel
def count_columns(offsets: Any, columns: Any, rows: Any, counts: Any) -> int:
    """Add to ``counts`` how often each column occurs in some rows; return the entries of these."""
    entries = 0
    for i in rows:
        entries += offsets[i + 1] - offsets[i]
        for e in range(offsets[i], offsets[i + 1]):
            counts[columns[e]] += 1
    return entries


@kernel
def copy_rows(source: Any, rows: Any, number: Any, target: Any) -> None:
    """Copy some rows, their columns numbered anew.

    Args:
        source: offsets, columns and values of all rows.
        rows: the numbers of those to copy.
        number: (D,) the new number of every column.
        target: offsets, columns and values to fill.
    """
    offsets, columns, values = source
    to_offsets, to_columns, to_values = target
    place = 0
    for n in range(len(rows)):
        to_offsets[n] = place
        for e in range(offsets[rows[n]], offsets[rows[n] + 1]):
            to_columns[place] = number[columns[e]]
            to_values[place] = values[e]
            place += 1
    to_offsets[len(rows)] = place


@kernel
def solve(
    x: Any,
    sides: Any,
    costs: Any,
    factors: Any,
    a: Any,
    w: Any,
    tolerance: float,
    passes: int,
    seed: int,
) -> Any:
    """Solve up to 16 problems; return how many passes were made, and the lanes that did not end.

    Args:
        x: offsets, columns and values of n rows.
        sides: (n, LANES) int8, 1 or -1, 0 where a row says nothing.
        costs: (n,) what each row costs; 0 leaves it out.
        factors: (LANES,) by which positives cost more.
        a: (n, LANES) float32, where to begin, and where it ends.
        w: (D + 1, LANES) float32, filled with the weights, that of the constant column last.
        tolerance: how far apart the projected gradients of a lane may be, 1 being where it begins.
        passes: over all rows at most; one over fewer counts as its share.
        seed: of the order of the rows.
    """
    offsets, columns, values = x
    n, last = len(offsets) - 1, len(w) - 1
    active = np.empty(n, dtype=np.int32)  # lanes of a row that are not shrunk, as bits
    order = np.empty(n, dtype=np.int32)
    square = np.empty(n, dtype=np.float32)
    s = np.zeros(LANES, dtype=np.float32)
    step = np.zeros(LANES, dtype=np.float32)
    high = np.empty(LANES, dtype=np.float32)  # the largest and the least projected gradient
    low = np.empty(LANES, dtype=np.float32)
    bound = np.empty(LANES, dtype=np.float32)  # of the last pass
    w[:] = F(0)
    for i in range(n):
        total = F(1)
        for e in range(offsets[i], offsets[i + 1]):
            total += values[e] * values[e]
        square[i] = total
        used = False
        for k in range(LANES):
            if sides[i, k] == 0 or costs[i] <= 0:
                a[i, k] = F(0)
            step[k] = sides[i, k] * a[i, k]
            used |= step[k] != 0
        if used:
            spread(step, w, columns, values, offsets[i], offsets[i + 1])
            for k in range(LANES):
                w[last, k] += step[k]

    live, waiting = ALL_LANES, ALL_LANES
    count, full = 0, True
    number = np.uint64(seed)
    made = visited = 0
    while visited < passes * n:
        if full:  # every row again
            live, waiting, count = waiting, 0, 0
            for i in range(n):
                bits = 0
                if costs[i] > 0:
                    for k in range(LANES):
                        if sides[i, k] != 0:
                            bits |= 1 << k
                active[i] = bits & live
                if active[i]:
                    order[count] = i
                    count += 1
            bound[:] = np.inf
        high[:] = -np.inf
        low[:] = np.inf
        for place in range(count - 1):  # shuffle, by xorshift64*
            number ^= number >> np.uint64(12)
            number ^= number << np.uint64(25)
            number ^= number >> np.uint64(27)
            drawn = (number * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(33)
            other = place + np.int64(drawn % np.uint64(count - place))
            order[place], order[other] = order[other], order[place]
        made += 1
        visited += count
        place = 0
        while place < count:
            i = order[place]
            bits = active[i] & live
            if bits == 0:
                active[i] = 0
                count -= 1
                order[place] = order[count]
                continue
            for k in range(LANES):
                s[k] = w[last, k]
            gather(s, w, columns, values, offsets[i], offsets[i + 1])
            changed = False
            for k in range(LANES):
                step[k] = F(0)
                if (bits >> k) & 1 == 0:
                    continue
                side, own = F(sides[i, k]), a[i, k]
                diagonal = F(0.5) / (costs[i] * (factors[k] if side > 0 else F(1)))
                g = side * s[k] - F(1) + own * diagonal
                projected = g
                if own == 0:
                    if g > bound[k]:
                        bits &= ~(1 << k)
                        continue
                    projected = min(g, F(0))
                high[k] = max(high[k], projected)
                low[k] = min(low[k], projected)
                if projected != 0:
                    new = max(own - g / (square[i] + diagonal), F(0))
                    a[i, k] = new
                    step[k] = side * (new - own)
                    changed = True
            active[i] = bits
            if changed:
                spread(step, w, columns, values, offsets[i], offsets[i + 1])
                for k in range(LANES):
                    w[last, k] += step[k]
            if bits:
                place += 1
            else:
                count -= 1
                order[place] = order[count]
        for k in range(LANES):
            if (live >> k) & 1:
                if high[k] - low[k] <= tolerance:
                    live &= ~(1 << k)
                    if not full:  # of the rows that were left; now look at all of them
                        waiting |= 1 << k
                bound[k] = high[k] if high[k] > 0 else F(np.inf)
        full = False
        if live == 0:
            if waiting == 0:
                break
            full = True
    return made, live | waiting


@kernel
def scatter(columns: Any, values: Any, slot: int, place: Any, slots: Any, entries: Any) -> None:
    """Put the weights of one problem where those of their columns are; ``place`` moves on."""
    for e in range(len(columns)):
        at = place[columns[e]]
        slots[at] = slot
        entries[at] = values[e]
        place[columns[e]] = at + 1


@kernel
def score(x: Any, offsets: Any, slots: Any, weights: Any, out: Any) -> None:
    """Add to ``out`` (n, S) sparse rows times sparse weights, which are stored by column.

    Args:
        x: offsets, columns and values of n rows.
        offsets: (D + 1,) where the weights of each column begin.
        slots: the problems of the weights.
        weights: the weights.
        out: of the bias.
    """
    starts, columns, values = x
    for i in range(len(starts) - 1):
        for e in range(starts[i], starts[i + 1]):
            v, c = values[e], columns[e]
            for place in range(offsets[c], offsets[c + 1]):
                out[i, slots[place]] += v * weights[place]
