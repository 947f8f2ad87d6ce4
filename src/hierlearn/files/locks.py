"""Locks: one process at a time changes a folder.

The folder itself is locked (``flock``), so no file is left behind and the lock of a process that
is killed is gone with it. Where the file system has no such locks, nothing is locked.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hierlearn.errors import HierlearnError

try:
    import fcntl
except ImportError:  # Windows
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT = 60.0  # seconds for another process to end
PAUSE = 0.02  # seconds between two looks


@dataclass
class Held:
    """The lock of a folder in this process; a thread may take it again."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    depth: int = 0
    handle: int | None = None


GUARD = threading.Lock()
FOLDERS: dict[tuple[int, int], Held] = {}  # by device and inode


class BusyError(HierlearnError):
    """Another process changes a folder."""


@contextmanager
def locked(folder: Path, seconds: float = WAIT) -> Iterator[None]:
    """Let no other process or thread into the same block with the same folder.

    Args:
        folder: which exists.
        seconds: how long to wait for others.

    Raises:
        BusyError: when they take longer.
    """
    stat = folder.stat()
    with GUARD:
        own = FOLDERS.setdefault((stat.st_dev, stat.st_ino), Held())
    end = time.monotonic() + seconds
    if not own.lock.acquire(timeout=seconds):
        raise busy(folder, seconds)
    try:
        if own.depth == 0:
            own.handle = take(folder, end, seconds)
        own.depth += 1
        try:
            yield
        finally:
            own.depth -= 1
            if own.depth == 0 and own.handle is not None:
                fcntl.flock(own.handle, fcntl.LOCK_UN)  # children may hold copies of the handle
                os.close(own.handle)
                own.handle = None
    finally:
        own.lock.release()


def take(folder: Path, end: float, seconds: float) -> int | None:
    """Lock a folder, and return its handle; None where that is not possible."""
    if not HAS_LOCKS:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(handle)
                raise busy(folder, seconds) from None
            time.sleep(PAUSE)
        except OSError:  # a file system without locks
            os.close(handle)
            return None


def busy(folder: Path, seconds: float) -> BusyError:
    """Return the error of a folder that others change."""
    return BusyError(
        f"{folder} is being changed by another process, for more than {seconds:g} s; wait until "
        f"it has ended, and try again"
    )
