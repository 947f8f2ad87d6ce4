"""Ranges of rows on several threads at once: those of torch, where its OpenMP runtime is found.

After each operation torch's threads keep waiting busily for the next one. Threads of our own would
have to share the cores with them, and lose more than they gain on all but large batches. So the
ranges are given to torch's threads, by the same call that compiled OpenMP code makes. Kernels
release the GIL, so ranges are computed at once; only their start and end take turns.
"""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

SHARE = 1 << 15  # entries that a thread takes at least
OWN_SHARE = 1 << 21  # the same for threads of our own, which compete with those of torch
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
PROCESS = os.getpid()  # OpenMP does not survive a fork


def on_threads(work: Callable[[int, int], Any], rows: int, entries: int) -> list[Any]:
    """Return the results of ``work(begin, end)`` for ranges of rows, one per thread.

    Args:
        work: computes a range of rows; must release the GIL to gain anything.
        rows: how many there are.
        entries: the size of the work, in logits.
    """
    runtime = openmp() if os.getpid() == PROCESS else None
    share = OWN_SHARE if runtime is None else SHARE
    threads = min(torch.get_num_threads(), rows, max(1, entries // share))
    if threads <= 1:
        return [work(0, rows)]
    bounds = [rows * number // threads for number in range(threads + 1)]
    ranges = list(pairwise(bounds))
    if runtime is None:
        with ThreadPoolExecutor(threads) as executor:
            return list(executor.map(lambda one: work(*one), ranges))
    return in_team(runtime, work, ranges)


def in_team(
    runtime: ctypes.CDLL, work: Callable[[int, int], Any], ranges: list[tuple[int, int]]
) -> list[Any]:
    """Compute every range by one thread of the runtime's team."""
    found: list[Any] = [None] * len(ranges)
    raised: list[BaseException] = []

    def run(_: Any) -> None:
        # A team may be smaller than asked for.
        first, step = runtime.omp_get_thread_num(), runtime.omp_get_num_threads()
        try:
            for number in range(first, len(ranges), step):
                found[number] = work(*ranges[number])
        except BaseException as error:  # it cannot pass through the runtime
            raised.append(error)

    runtime.GOMP_parallel(ENTRY(run), None, len(ranges), 0)
    if raised:
        raise raised[0]
    return found


@lru_cache(maxsize=1)
def openmp() -> ctypes.CDLL | None:
    """Return the OpenMP runtime that comes with torch; None where there is none."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            runtime = ctypes.CDLL(str(path))
            _ = runtime.GOMP_parallel, runtime.omp_get_thread_num, runtime.omp_get_num_threads
        except (OSError, AttributeError):
            continue
        runtime.GOMP_parallel.restype = None
        runtime.GOMP_parallel.argtypes = (ENTRY, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        return runtime
    return None
