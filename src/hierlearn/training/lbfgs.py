"""L-BFGS: minimize a smooth function of a matrix, all rows at once (Liu and Nocedal, 1989).

In single precision and without a copy of the matrix in double, so that a million weights are no
burden. Steps are halved until the function falls enough (Armijo).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.floating]

MEMORY = 8  # steps from which curvature is known
DECREASE = 1e-4  # of what the slope promises
ROUNDING = 1e-6  # by which a value may rise, relative: sums in single precision
HALVINGS = 16


def minimize(
    function: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    *,
    iterations: int = 100,
    tolerance: float = 1e-3,
) -> Floats:
    """Return where the gradient is small, or what ``iterations`` steps reach.

    Args:
        function: from a matrix to its value and its gradient.
        start: where to begin.
        iterations: steps at most.
        tolerance: the largest entry of the gradient at the end, relative to that at the start.
    """
    x = start
    value, gradient = function(x)
    small = tolerance * float(np.abs(gradient).max(initial=0.0))
    steps: deque[tuple[Floats, Floats, float]] = deque(maxlen=MEMORY)
    for _ in range(iterations):
        if float(np.abs(gradient).max(initial=0.0)) <= small:
            break
        direction = -_times_inverse_hessian(gradient, steps)
        slope = float(np.vdot(gradient, direction))
        size = 1.0
        for _ in range(HALVINGS):
            new = x + size * direction
            new_value, new_gradient = function(new)
            if new_value <= value + DECREASE * size * slope + ROUNDING * abs(value):
                break
            size /= 2
        else:
            break  # no progress is possible at this precision
        step, change = new - x, new_gradient - gradient
        curvature = float(np.vdot(step, change))
        if curvature > 1e-10 * float(np.vdot(change, change)):
            steps.append((step, change, 1 / curvature))
        x, value, gradient = new, new_value, new_gradient
    return x


def _times_inverse_hessian(gradient: Floats, steps: deque[tuple[Floats, Floats, float]]) -> Floats:
    """Return the gradient times what the last steps say of the inverse Hessian."""
    if not steps:
        return gradient / max(float(np.linalg.norm(gradient)), 1e-30)
    found = gradient.copy()
    shares = []
    for step, change, inverse in reversed(steps):
        shares.append(inverse * float(np.vdot(step, found)))
        found -= shares[-1] * change
    last_step, last_change, _ = steps[-1]
    found *= float(np.vdot(last_step, last_change)) / float(np.vdot(last_change, last_change))
    for (step, change, inverse), share in zip(steps, reversed(shares), strict=True):
        found += (share - inverse * float(np.vdot(change, found))) * step
    return found
