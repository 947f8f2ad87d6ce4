"""Clock: the time that a training may take, and what stops one that would take longer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_UP = 10  # steps before a training is judged by its speed


class OutOfTime(Exception):  # noqa: N818  a signal, caught below
    """A training would take more time than is left."""


@dataclass
class Clock:
    """The time that is left.

    Attributes:
        limit: seconds in all; None for no limit.
        begun: when it started.
    """

    limit: float | None
    begun: float = field(default_factory=lambda: time.monotonic())

    @property
    def left(self) -> float:
        """The seconds until the limit."""
        if self.limit is None:
            return float("inf")
        return self.limit - (time.monotonic() - self.begun)

    def watch(self, budget: float, times: float = 1.0) -> Callable[[int, int], None]:
        """Return a callback for every step that stops a training which takes too long.

        Args:
            budget: the seconds that it may take.
            times: how many such trainings must fit.
        """
        begun = time.monotonic()

        def on_step(step: int, steps: int) -> None:
            taken = time.monotonic() - begun
            if step >= min(WARM_UP, steps) and taken / step * steps * times > budget:
                raise OutOfTime

        return on_step
