"""Arithmetic and sweeps over one row of a tree, for the CPU kernels, and those of the softmax link.

The compiler calls libm once per number for exp and log, which costs ten times more than everything
around it. Those here vectorize, in single precision, and are branch-free: the argument is reduced
to a small interval, where a polynomial (Chebyshev-Padé fits, relative errors below 2e-7) is
evaluated.

    e      (C,) exp(x - peak) of each terminal class, 0 for the others
    p      (C,) the sum of e at or below each class; p / total is its probability
    log_not_p   (C,) the logarithm of the complement of each probability

Classes are in level order with siblings together. What has children is a *slot*: slot 0 is the root
above the top classes, the others are the inner classes in order, and the children of slot s are the
columns ``first[s] : first[s + 1]``.

Sums are of exponentials relative to the largest logit of the row. Where such a sum is too small to
be accurate, the logarithms of what it is made of are summed again (``TINY``).

At most one class of a group has p > 1/2, and so have its ancestors: the *heavy* classes of a row
form a path from the top. For all others 1 - p is a safe subtraction; for heavy classes what lies
outside is summed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

F = np.float32
I = np.int32  # noqa: E741  the partner of F
# What the optimizer may do: fused multiply-add, no sign of zero; for sums also change their order,
# without which they do not vectorize.
EXACT = {"contract", "nsz"}
SUMS = {*EXACT, "reassoc"}

LOG2_E = F(1.4426950408889634)
LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)  # their sum is log 2; the first is short
LOWEST = F(-87.0)  # exp of less is 0
HALF_ROOT = F(0.70710678)
LOG_ZERO = F(-1e30)  # log(0), but finite
LEAST = F(1.2e-38)  # the least number of full precision
TINY = F(1e-30)  # sums of fewer exponentials than this are repeated with logarithms


def part(fastmath: set[str] = EXACT) -> Any:
    """Decorate a part of a kernel: inlined, with its own rules of arithmetic."""
    return njit(forceinline=True, fastmath=fastmath, error_model="numpy")


def kernel(function: Any) -> Any:
    """Decorate a kernel: a loop over rows without the GIL, compiled once per machine."""
    options = {"nogil": True, "fastmath": EXACT, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written
        return njit(**options)(function)


@intrinsic
def bits_of(_: Any, __: Any) -> Any:
    """Return the 32 bits of a float as an integer."""
    return types.int32(types.float32), lambda _c, b, _s, a: b.bitcast(a[0], ir.IntType(32))


@intrinsic
def float_of(_: Any, __: Any) -> Any:
    """Return the float of 32 bits."""
    return types.float32(types.int32), lambda _c, b, _s, a: b.bitcast(a[0], ir.FloatType())


@part()
def ordered(x: Any) -> Any:
    """Return an integer that compares as x does: maxima of integers vectorize."""
    bits = bits_of(x)
    return bits ^ ((bits >> I(31)) & I(0x7FFFFFFF))


@part()
def from_ordered(number: Any) -> Any:
    """Return the number of which ``ordered`` made an integer."""
    return float_of(number ^ ((number >> I(31)) & I(0x7FFFFFFF)))


@part()
def choose(condition: Any, one: Any, other: Any) -> Any:
    """Return one of two numbers without a branch: both are read whatever is chosen.

    A branch on what differs from row to row is predicted wrong as often as not, and costs more
    than all the rest.
    """
    return one if condition else other


@part()
def copy(values: Any, out: Any) -> None:
    """Copy values; assigning to a slice does not vectorize."""
    for c in range(len(out)):
        out[c] = values[c]


@part()
def exp(x: Any) -> Any:
    """Return e to the power of x, for x up to 88."""
    whole = np.floor(x * LOG2_E + F(0.5))
    r = x - whole * LN2_HIGH - whole * LN2_LOW
    p = F(1.9875691e-4) * r + F(1.3981999e-3)
    p = p * r + F(8.3334519e-3)
    p = p * r + F(4.1665795e-2)
    p = p * r + F(1.6666665e-1)
    p = p * r + F(0.5)
    p = p * (r * r) + r + F(1.0)
    scale = float_of((I(max(whole, F(-126.0))) + I(127)) << I(23))
    return p * scale if x > LOWEST else F(0.0)


@part()
def log(x: Any) -> Any:
    """Return the natural logarithm of a positive, normal number."""
    bits = bits_of(x)
    power = F((bits >> I(23)) - I(126))
    m = float_of((bits & I(0x007FFFFF)) | I(0x3F000000))  # in [1/2, 1)
    small = m < HALF_ROOT
    power = power - F(1.0) if small else power
    m = m + m - F(1.0) if small else m - F(1.0)
    z = m * m
    p = F(7.0376836e-2) * m - F(1.1514610e-1)
    p = p * m + F(1.1676998e-1)
    p = p * m - F(1.2420140e-1)
    p = p * m + F(1.4249322e-1)
    p = p * m - F(1.6668057e-1)
    p = p * m + F(2.0000714e-1)
    p = p * m - F(2.4999993e-1)
    p = p * m + F(3.3333331e-1)
    return m + (p * m * z + LN2_LOW * power - F(0.5) * z) + LN2_HIGH * power


@part()
def log1p(x: Any) -> Any:
    """Return log(1 + x) for x in [-1/2, 1]; accurate where x is small."""
    y = F(1.0) + x
    d = y - F(1.0)
    return x if d == F(0.0) else log(y) * (x / (d if d != F(0.0) else F(1.0)))


@part()
def softplus(z: Any) -> Any:
    """Return log(1 + exp(z))."""
    return max(z, F(0.0)) + log1p(exp(-abs(z)))


@part()
def sigmoid(z: Any) -> Any:
    """Return 1 / (1 + exp(-z))."""
    e = exp(-abs(z))
    s = F(1.0) / (F(1.0) + e)
    return s if z >= F(0.0) else e * s


FEW = 32  # classes of a group from which on its sum is vectorized


class Tree(NamedTuple):
    """The arrays of a TreeLayout: int32, but for ``parent`` and ``terminal``."""

    first: Any  # (S + 1,) the first child of each slot, then C
    owner: Any  # (S,) the class of each slot, -1 for the root
    slot: Any  # (C,) the slot of each inner class, -1 for a leaf
    parent: Any  # (C,) uint32, the slot of each class's parent; unsigned indices vectorize
    terminal: Any  # (C,) uint8
    size: Any  # (C,) int32, the classes at or below each


class Row(NamedTuple):
    """Scratch memory for one row."""

    x: Any  # (C,) the logits less the largest of the terminal classes
    e: Any  # (C,)
    p: Any  # (C,)
    log_p: Any  # (S,) the log-probability of the class of each slot
    log_not_p: Any  # (C,)
    inside: Any  # (C,) gradients, multiplied by p, of what lies at or below each class
    passed: Any  # (S,) what a slot passes on, over p of its class
    heavy: Any  # (C,) int32, the heavy classes from the top


@part()
def new_row(classes: int, slots: int) -> Any:
    """Return scratch memory."""
    return Row(
        np.empty(classes, F),
        np.empty(classes, F),
        np.empty(classes, F),
        np.empty(slots, F),
        np.empty(classes, F),
        np.empty(classes, F),
        np.empty(slots, F),
        np.empty(classes, np.int32),
    )


@part()
def largest(x: Any, terminal: Any) -> Any:
    """Return the largest logit of the terminal classes; without NaN."""
    least = ordered(F(-np.inf))
    best = least
    for c in range(len(x)):
        number = ordered(x[c])
        best = max(best, number if terminal[c] else least)
    return from_ordered(best)


@part(SUMS)
def vanishing(x: Any) -> Any:
    """Return 0 if all numbers are finite, else NaN."""
    total = F(0.0)
    for c in range(len(x)):
        total += x[c] * F(0.0)
    return total


@part()
def exponentials(x: Any, terminal: Any, shifted: Any, e: Any) -> None:
    """Set ``shifted`` to x less its largest, and e to the exponentials of terminal classes."""
    peak = largest(x, terminal)
    for c in range(len(x)):
        shifted[c] = x[c] - peak
        value = exp(x[c] - peak)
        e[c] = value if terminal[c] else F(0.0)


@part(SUMS)
def sum_of(values: Any, begin: int, end: int) -> Any:
    """Return the sum of a range."""
    total = F(0.0)
    for c in range(begin, end):
        total += values[c]
    return total


@part()
def sum_of_few(values: Any, begin: int, end: int) -> Any:
    """Return the sum of a range of a few: in two chains, not vectorized."""
    even, odd = F(0.0), F(0.0)
    c = begin
    while c + 1 < end:
        even += values[c]
        odd += values[c + 1]
        c += 2
    return even + odd + (values[c] if c < end else F(0.0))


@part()
def sum_up(p: Any, tree: Any) -> Any:
    """Add to each class what lies below it, and return the sum of the top classes."""
    end = len(p)
    for s in range(len(tree.owner) - 1, 0, -1):
        begin = tree.first[s]
        if end - begin > FEW:
            p[tree.owner[s]] += sum_of(p, begin, end)
        else:
            p[tree.owner[s]] += sum_of_few(p, begin, end)
        end = begin
    return sum_of(p, 0, end)


@part()
def fold(x: Any, tree: Any, row: Any) -> Any:
    """Set x, e and p of a row and return the sum of e."""
    exponentials(x, tree.terminal, row.x, row.e)
    copy(row.e, row.p)
    return sum_up(row.p, tree)


@part()
def log_of(tree: Any, row: Any, c: int, log_total: Any) -> Any:
    """Return the log-probability of a class of a row whose ``log_p`` is set."""
    s = tree.slot[c]
    return row.x[c] - log_total if s < 0 else row.log_p[s]


@part()
def own_log(tree: Any, row: Any, s: int, log_total: Any) -> Any:
    """Return the log mass of a slot's class alone."""
    if s > 0 and tree.terminal[tree.owner[s]]:
        return row.x[tree.owner[s]] - log_total
    return LOG_ZERO


@part()
def log_mass(tree: Any, row: Any, s: int, without: int, log_total: Any) -> Any:
    """Return the mass of a slot, its class alone and its children but one, as (peak, sum).

    It is exp(peak) * sum.
    """
    own = own_log(tree, row, s, log_total)
    peak = own
    for c in range(tree.first[s], tree.first[s + 1]):
        if c != without:
            peak = max(peak, log_of(tree, row, c, log_total))
    if peak <= LOG_ZERO / F(2.0):
        return LOG_ZERO, F(1.0)
    total = exp(own - peak)
    for c in range(tree.first[s], tree.first[s + 1]):
        if c != without:
            total += exp(log_of(tree, row, c, log_total) - peak)
    return peak, total


@part()
def logarithms(tree: Any, row: Any, total: Any) -> None:
    """Set log_p of a row that was folded."""
    scale, tiny = F(1.0) / total, False
    row.log_p[0] = F(0.0)
    for s in range(1, len(tree.owner)):
        p = row.p[tree.owner[s]]
        tiny = tiny or p < TINY
        row.log_p[s] = p * scale
    for s in range(1, len(tree.owner)):
        row.log_p[s] = min(log(max(row.log_p[s], LEAST)), F(0.0))
    if tiny:
        log_total = log(total)
        for s in range(len(tree.owner) - 1, 0, -1):
            if row.p[tree.owner[s]] < TINY:
                peak, mass = log_mass(tree, row, s, -1, log_total)
                row.log_p[s] = peak + log(mass)


@part()
def complements(tree: Any, row: Any, total: Any) -> int:
    """Set log_not_p of a row whose log_p is set, and return the number of heavy classes."""
    scale = F(1.0) / total
    for c in range(len(row.p)):
        row.log_not_p[c] = log1p(-min(row.p[c] * scale, F(0.5)))
    return find_heavy(tree, row, total)


@part()
def find_heavy(tree: Any, row: Any, total: Any) -> int:
    """Write down the heavy classes and their log_not_p, and return their number."""
    scale = F(1.0) / total
    log_total = log(total)
    outside, s, count = LOG_ZERO, 0, 0
    while s >= 0:
        begin, end = tree.first[s], tree.first[s + 1]
        best = -1
        for c in range(begin, end):
            if row.p[c] + row.p[c] > total:
                best = c
        if best < 0:
            break
        rest = sum_of(row.p, begin, best) + sum_of(row.p, best + 1, end)
        if s > 0 and tree.terminal[tree.owner[s]]:
            rest += row.e[tree.owner[s]]
        if rest >= TINY:
            others = log(rest * scale)
        else:
            peak, mass = log_mass(tree, row, s, best, log_total)
            others = peak + log(mass)
        high, low = max(outside, others), min(outside, others)
        outside = high + log1p(exp(low - high))
        row.log_not_p[best] = outside
        row.heavy[count] = best
        count += 1
        s = tree.slot[best]
    return count


@part(SUMS)
def weigh_complements(gradient: Any, row: Any, total: Any) -> Any:
    """Add the gradients of log(1 - p) to ``inside``, and return what they give to every class.

    Heavy classes, whose gradient is 0 here, are not among them.
    """
    share = F(0.0)
    for c in range(len(gradient)):
        odds = gradient[c] * row.p[c] / (total - min(row.p[c], F(0.5) * total))
        row.inside[c] -= odds
        share += odds
    return share


@part()
def weigh_heavy(gradient: Any, count: int, tree: Any, row: Any, total: Any, dx: Any) -> None:
    """Add the gradients of log(1 - p) of heavy classes to ``inside`` and dx.

    Such a class gives -q to what lies below it, and q p / (1 - p) to what lies outside. The latter
    goes to the branches that leave the heavy path above it.
    """
    log_total = log(total)
    owed = F(0.0)  # times q / (1 - p) of the heavy class below, what a branch receives
    for place in range(count - 1, -1, -1):
        c = row.heavy[place]
        log_out = row.log_not_p[c]
        if log_out <= LOG_ZERO / F(2.0):
            break  # nothing lies outside: p is 1 and has no gradient
        if place + 1 < count:
            owed *= exp(log_out - row.log_not_p[row.heavy[place + 1]])
        owed += gradient[place] * row.p[c] / total
        row.inside[c] -= gradient[place] * row.p[c] / total
        s = tree.parent[c]
        for k in range(tree.first[s], tree.first[s + 1]):
            if k != c:
                row.inside[k] += owed * exp(log_of(tree, row, k, log_total) - log_out)
        own = own_log(tree, row, s, log_total)
        if own > LOG_ZERO:
            dx[tree.owner[s]] += owed * exp(own - log_out)


@part()
def spread(tree: Any, row: Any, share: Any, total: Any, dx: Any) -> None:
    """Pass ``inside`` on to what lies below, and write the gradient of the logits.

    Args:
        tree: the tree.
        row: folded, with ``inside`` set.
        share: what every terminal class receives, times its probability.
        total: the sum of e.
        dx: (C,) what is added to the gradient of a class alone; receives the gradient.
    """
    log_total = log(total)
    everywhere = share / total
    row.passed[0] = F(0.0)
    for s in range(1, len(tree.owner)):
        c = tree.owner[s]
        above = row.passed[tree.parent[c]]
        given = row.inside[c] + above * row.p[c]
        row.inside[c] = F(0.0)
        row.passed[s] = F(0.0)
        if given == F(0.0):
            continue
        if row.p[c] >= TINY:
            row.passed[s] = given / row.p[c]
            continue
        # Fractions of what lies at or below, which sum to 1 whatever logarithms were rounded to.
        peak, mass = log_mass(tree, row, s, -1, log_total)
        given /= mass
        for k in range(tree.first[s], tree.first[s + 1]):
            row.inside[k] += given * exp(log_of(tree, row, k, log_total) - peak)
        if tree.terminal[c]:
            dx[c] += given * exp(own_log(tree, row, s, log_total) - peak)
    for s in range(1, len(tree.owner)):  # the masses of inner classes alone
        c = tree.owner[s]
        row.inside[c] = row.passed[s] * row.e[c]
        dx[c] -= row.passed[tree.parent[c]] * row.e[c]
    for c in range(len(dx)):
        dx[c] += row.inside[c] + (row.passed[tree.parent[c]] + everywhere) * row.e[c]


@kernel
def link_forward(begin: int, end: int, x: Any, tree: Any, log_p: Any, log_not_p: Any) -> None:
    """Write log p and log(1 - p) of every class."""
    row = new_row(x.shape[1], len(tree.owner))
    for i in range(begin, end):
        total = fold(x[i], tree, row)
        logarithms(tree, row, total)
        complements(tree, row, total)
        log_total = log(total)
        for c in range(len(row.x)):
            log_p[i, c] = row.x[c] - log_total
        for s in range(1, len(tree.owner)):
            log_p[i, tree.owner[s]] = row.log_p[s]
        copy(row.log_not_p, log_not_p[i])


@kernel
def link_backward(
    begin: int, end: int, x: Any, tree: Any, given_p: Any, given_not_p: Any, dx: Any
) -> None:
    """Write the gradient of the logits; a given gradient of no columns is 0."""
    classes = x.shape[1]
    row = new_row(classes, len(tree.owner))
    not_p = np.empty(classes, F)
    heavy_not_p = np.empty(classes, F)
    for i in range(begin, end):
        total = fold(x[i], tree, row)
        logarithms(tree, row, total)
        count = complements(tree, row, total)
        dx[i, :] = F(0.0)
        share = F(0.0)
        if given_p.shape[1]:
            copy(given_p[i], row.inside)
            share -= sum_of(row.inside, 0, classes)
        else:
            row.inside[:] = F(0.0)
        if given_not_p.shape[1]:
            copy(given_not_p[i], not_p)
            for place in range(count):
                heavy_not_p[place] = not_p[row.heavy[place]]
                not_p[row.heavy[place]] = F(0.0)
            share += weigh_complements(not_p, row, total)
            weigh_heavy(heavy_not_p, count, tree, row, total, dx[i])
        spread(tree, row, share, total, dx[i])
