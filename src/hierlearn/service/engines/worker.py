"""Worker: what runs a job in another process, whichever engine started that process.

A job is ``function(data, *args, on_step=...)``. The data is resolved here and kept for the next
jobs; an exception of the function is an answer like any other, so that it reaches the caller as it
is, the same on every engine. Jobs of one process run one at a time: training seeds the generators
of the whole process.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
import traceback
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hierlearn.files.writing import remove

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = 2  # values of data that a worker keeps for its next jobs
REPORTS = 100  # steps of a job that are reported

_kept: OrderedDict[str, Any] = OrderedDict()
_one_at_a_time = threading.RLock()
_channel: dict[str, Any] = {}  # how this process reports steps, and is asked to stop


class StoppedError(Exception):
    """Nobody waits for this job any more."""


class RemoteTraceback(Exception):  # noqa: N818  shown as the cause of an error
    """Where an error was raised in a worker."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True)
class Failure:
    """An exception that a job raised.

    Attributes:
        error: the exception.
        trace: its traceback in the worker.
    """

    error: BaseException
    trace: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Describe an exception; one that cannot be pickled is sent as its text."""
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return cls(error.with_traceback(None), trace)

    def raised(self) -> BaseException:
        """Return the exception as it is raised for the caller."""
        self.error.__cause__ = RemoteTraceback(self.trace)
        return self.error


@dataclass
class Data(ABC):
    """A value that is sent to a worker once, and resolved by each job there.

    Attributes:
        key: unique for a value that was shared.
    """

    key: str = field(default_factory=lambda: uuid4().hex)

    @abstractmethod
    def load(self) -> Any:
        """Return the value, in a process that does not have it yet."""

    def get(self) -> Any:
        """Return the value; the last ones are kept."""
        if self.key not in _kept:
            _kept[self.key] = self.load()
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
        return _kept[self.key]


@dataclass
class FileData(Data):
    """A value in a temporary file, for workers of the same machine."""

    path: str = ""

    @classmethod
    def write(cls, value: Any) -> FileData:
        """Write a value into a file."""
        handle, path = tempfile.mkstemp(prefix="hierlearn-", suffix=".pickle")
        with os.fdopen(handle, "wb") as file:
            pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
        return cls(path=path)

    def load(self) -> Any:
        """Read the file."""
        return pickle.loads(Path(self.path).read_bytes())  # written by the caller of this job

    def remove(self) -> None:
        """Remove the file."""
        remove(Path(self.path))


@dataclass
class SentData(Data):
    """A value that goes along with every job, and is unpickled once per process."""

    value: Any = None
    pickled: bytes | None = None

    def get(self) -> Any:
        """Return the value itself where the job runs in the process that shared it."""
        return super().get() if self.value is None else self.value

    def load(self) -> Any:
        """Unpickle it."""
        return pickle.loads(self.pickled or b"")

    def __getstate__(self) -> dict[str, Any]:
        if self.pickled is None:
            self.pickled = pickle.dumps(self.value, protocol=pickle.HIGHEST_PROTOCOL)
        return {"key": self.key, "value": None, "pickled": self.pickled}


def open_channel(steps: Any, stop: Any) -> None:
    """Set where steps of jobs in this process are reported, and the event that stops them."""
    _channel.update(steps=steps, stop=stop)


def call(
    function: Callable[..., Any], number: int, data: Any, args: tuple[Any, ...], threads: int | None
) -> Any:
    """Run a job in this process; return its result, or a Failure.

    Args:
        function: called with the data, the arguments and ``on_step``.
        number: of the job, for the report of its steps.
        data: a value, or a Data.
        args: further arguments.
        threads: how many threads torch may use; None leaves that to the engine.
    """
    with _one_at_a_time:
        found = data.get() if isinstance(data, Data) else data
        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        try:
            return function(found, *args, on_step=reporter(number))
        except Exception as error:
            return Failure.of(error)


def reporter(number: int) -> Callable[[int, int], None] | None:
    """Return the callback for the steps of a job; None where nobody listens."""
    if not _channel:
        return None

    def on_step(step: int, of: int) -> None:
        if _channel["stop"].is_set():
            raise StoppedError
        if step == of or step % max(1, of // REPORTS) == 0:
            _channel["steps"].send((number, step, of))

    return on_step
