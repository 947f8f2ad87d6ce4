"""L-BFGS: minimize a smooth function of a matrix, all rows at once (Liu and Nocedal, 1989).

Steps are halved until the function falls enough (Armijo).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Steps = deque[tuple[Tensor, Tensor, float]]

MEMORY = 6  # steps from which curvature is known
DECREASE = 1e-4  # of what the slope promises
ROUNDING = 1e-6  # by which a value may rise, relative: sums in single precision
HALVINGS = 16


def minimize(
    function: Callable[[Tensor], tuple[float, Tensor]],
    start: Tensor,
    *,
    iterations: int = 100,
    tolerance: float = 1e-3,
) -> Tensor:
    """Return where the gradient is small, or what ``iterations`` steps reach.

    Args:
        function: from a matrix to its value and its gradient.
        start: where to begin.
        iterations: steps at most.
        tolerance: the largest entry of the gradient at the end, relative to that at the start.
    """
    x = start
    value, gradient = function(x)
    small = tolerance * largest(gradient)
    steps: Steps = deque(maxlen=MEMORY)
    for _ in range(iterations):
        if largest(gradient) <= small:
            break
        direction = times_inverse_hessian(gradient, steps).neg_()
        slope = dot(gradient, direction)
        size = 1.0
        for _ in range(HALVINGS):
            new = x.add(direction, alpha=size)
            new_value, new_gradient = function(new)
            if new_value <= value + DECREASE * size * slope + ROUNDING * abs(value):
                break
            size /= 2
        else:
            break  # no progress is possible at this precision
        step, change = new - x, new_gradient - gradient
        curvature = dot(step, change)
        if curvature > 1e-10 * dot(change, change):
            steps.append((step, change, 1 / curvature))
        x, value, gradient = new, new_value, new_gradient
    return x


def times_inverse_hessian(gradient: Tensor, steps: Steps) -> Tensor:
    """Return the gradient times what the last steps say of the inverse Hessian."""
    found = gradient.clone()
    if not steps:
        return found.div_(max(dot(gradient, gradient) ** 0.5, 1e-30))
    shares = []
    for step, change, inverse in reversed(steps):
        shares.append(inverse * dot(step, found))
        found.add_(change, alpha=-shares[-1])
    _, last_change, last_inverse = steps[-1]
    found.mul_(1 / (last_inverse * dot(last_change, last_change)))
    for (step, change, inverse), share in zip(steps, reversed(shares), strict=True):
        found.add_(step, alpha=share - inverse * dot(change, found))
    return found


def dot(a: Tensor, b: Tensor) -> float:
    """Return the sum of the products of the entries."""
    return float(a.view(-1).dot(b.view(-1)))


def largest(values: Tensor) -> float:
    """Return the largest absolute value, 0 if there is none."""
    return float(values.abs().max()) if values.numel() else 0.0
