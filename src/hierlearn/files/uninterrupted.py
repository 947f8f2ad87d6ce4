"""Uninterrupted: a few renames that belong together, which Ctrl-C and SIGTERM wait for."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back signals until the block ends; only the main thread receives any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {one: signal.getsignal(one) for one in SIGNALS}
    for one in SIGNALS:
        if before[one] not in (signal.SIG_IGN, None):
            signal.signal(one, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for one, handler in before.items():
            if handler is not None:
                signal.signal(one, handler)
        for number in received[:1]:
            signal.raise_signal(number)
