"""Read ahead: threads read what comes next while the caller works on what was read."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Key = TypeVar("Key")
Value = TypeVar("Value")

THREADS = 4  # files, or groups of rows, that are read at a time


def read_ahead(read: Callable[[Key], Value], keys: Iterable[Key], most: int = 1) -> Iterator[Value]:
    """Yield ``read(key)`` of every key in order, the next of them read in threads meanwhile.

    Args:
        read: called in a thread.
        keys: what to read.
        most: how many are read ahead, and at a time.
    """
    with ThreadPoolExecutor(most, thread_name_prefix="hierlearn-read") as pool:
        pending: deque[Future[Value]] = deque()
        try:
            for key in keys:
                pending.append(pool.submit(read, key))
                if len(pending) > most:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for one in pending:
                one.cancel()
