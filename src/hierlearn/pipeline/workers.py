"""Workers: where a training may run its parts at the same time, if they are lent to it.

``hierlearn.service.engine.use_executor`` lends those of an Executor for a block of code.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator


@dataclass(frozen=True)
class Call:
    """A job for a worker: ``function(data, *args, on_step=...)``.

    Attributes:
        function: of a module that workers can import.
        data: what many jobs share; sent to each worker once.
        args: what is its own.
    """

    function: Callable[..., Any]
    data: Any
    args: tuple[Any, ...] = ()


class Workers(Protocol):
    """What runs jobs: an Engine of ``hierlearn.service``."""

    @property
    def workers(self) -> int:
        """How many jobs run at a time."""

    def run(self, jobs: Iterable[Any], on_step: Any = None) -> Generator[Any, None, None]:
        """Run jobs, and yield how each ended: its number, and ``result()``."""


_lent: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def lend(workers: Workers) -> Iterator[None]:
    """Let trainings in this block use workers."""
    token = _lent.set(workers)
    try:
        yield
    finally:
        _lent.reset(token)


def lent_workers() -> Workers | None:
    """Return the workers that a training may use; None where it trains by itself."""
    return _lent.get()
