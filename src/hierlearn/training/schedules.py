"""Schedules: the learning rate of every step, as a fraction of its peak.

    constant   1
    linear     falls to 0 on a line
    cosine     falls to 0 along half a cosine
    cyclic     five triangles between a tenth and 1 (Smith 2017, "Cyclical learning rates")
    1cycle     rises from 1/25 over the first 30 %, then falls to 4e-6, both along half a cosine
               (Smith and Topin 2019, "Super-convergence"); the momentum stays as it is

``cyclic`` and ``1cycle`` are torch's ``CyclicLR`` (mode "triangular") and ``OneCycleLR`` with their
default fractions. A schedule is a function of the step, from 0, and the number of steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CYCLES = 5  # triangles of ``cyclic``
LOWEST = 0.1  # of ``cyclic``
FIRST = 1 / 25  # of ``1cycle``
LAST = FIRST / 1e4
RISING = 0.3  # fraction of the steps in which ``1cycle`` rises


def constant(step: int, steps: int) -> float:
    """Return 1."""
    del step, steps
    return 1.0


def linear(step: int, steps: int) -> float:
    """Fall to 0 on a line."""
    return 1 - step / steps


def cosine(step: int, steps: int) -> float:
    """Fall to 0 along half a cosine."""
    return between(1.0, 0.0, step / steps)


def cyclic(step: int, steps: int) -> float:
    """Rise and fall in triangles."""
    half = max(1.0, steps / (2 * CYCLES))
    distance = abs(step / half % 2 - 1)  # from a peak, as a fraction of a half
    return LOWEST + (1 - LOWEST) * (1 - distance)


def one_cycle(step: int, steps: int) -> float:
    """Rise and fall once."""
    peak, last = RISING * steps - 1, steps - 1
    if step <= peak:
        return between(FIRST, 1.0, step / peak if peak > 0 else 1.0)
    return between(1.0, LAST, (step - peak) / (last - peak) if last > peak else 0.0)


def between(start: float, end: float, done: float) -> float:
    """Go from a start to an end along half a cosine, where a fraction is done."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * done))


SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
    "cyclic": cyclic,
    "1cycle": one_cycle,
}
