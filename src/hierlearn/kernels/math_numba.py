"""Exponentials and logarithms that vectorize, in single precision, for the CPU kernels.

The compiler calls libm once per number for exp and log, which costs ten times more than everything
around it. These are branch-free: the argument is reduced to a small interval, where a polynomial
(Chebyshev-Padé fits, relative errors below 2e-7) is evaluated.
"""

from __future__ import annotations

import math
from typing import Any

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
LN2 = F(math.log(2))
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
