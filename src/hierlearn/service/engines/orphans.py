"""Orphans: a worker process ends with the process that started it, whatever ended that one.

A thread waits for the parent's end of a pipe, which the system closes even where the parent was
killed; so it works on every system, and while the main thread computes.
"""

from __future__ import annotations

import os
import threading
from multiprocessing import connection, parent_process


def end_with_parent() -> None:
    """Exit at once when the parent of this process ends; call it in a process of a pool."""
    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)  # nobody is left to read a result or an error

    threading.Thread(target=wait, daemon=True, name="end-with-parent").start()
