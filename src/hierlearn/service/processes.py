"""Processes of this machine: the engine of ``--jobs``.

A process that trains alone on one core does not wait for another core, so on a CPU several
processes of few threads finish sooner than one process of many. Each worker is a pool of its own
with one process: where it is killed, the jobs of the others go on.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, get_all_start_methods, get_context, parent_process
from threading import RLock
from typing import TYPE_CHECKING, Any

from hierlearn.service.engine import Engine, FileData, open_channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from multiprocessing.context import BaseContext


MAX_JOBS = 8  # processes that are started without being asked for
PRELOADED = ["hierlearn.lab.runner", "torch._dynamo"]  # torch.optim imports the latter


def count_cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def default_jobs(jobs: int, device_type: str) -> int:
    """Return how many jobs to run at a time: one on a GPU, else one per core."""
    return 1 if device_type != "cpu" else max(1, min(MAX_JOBS, jobs, count_cores()))


def start_context(gpu: bool) -> BaseContext:
    """Return how processes start: never as a fork of this one, whose threads it would lack.

    On a CPU they are forks of a server that has done nothing but import, once for all of them. A
    GPU is used in processes of their own from the beginning.
    """
    if gpu or "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@dataclass
class Slot:
    """A worker.

    Attributes:
        pool: of one process.
        steps: where it reports steps.
        stop: asks it to stop its job.
    """

    pool: ProcessPoolExecutor
    steps: Any
    stop: Any

    def reported(self) -> list[tuple[int, int, int]]:
        """Return the steps that were reported since the last call."""
        found = []
        with suppress(EOFError, OSError):  # it was killed
            while self.steps.poll():
                found.append(self.steps.recv())
        return found


class ProcessEngine(Engine):
    """Processes of this machine.

    Args:
        workers: how many; one per core, at most MAX_JOBS, if None.
        gpu: whether jobs use a GPU.
    """

    name = "processes"

    def __init__(self, workers: int | None = None, *, gpu: bool = False) -> None:
        self.workers = workers or default_jobs(MAX_JOBS, "cuda" if gpu else "cpu")
        self.threads = max(1, count_cores() // self.workers)
        self._context = start_context(gpu)
        self._started: Any = None  # an event: whether any worker ever was
        self._lock = RLock()
        self._slots: list[Slot] = []
        self._free: list[Slot] = []
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function in the next process that is free."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        with self._lock:
            self._waiting.append((future, partial(fn, *args, **kwargs)))
        self._dispatch()
        return future

    def _dispatch(self) -> None:
        """Give what waits to what is free."""
        with self._lock:
            while self._waiting and (self._free or len(self._slots) < self.workers):
                future, function = self._waiting.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                slot = self._free.pop() if self._free else self._start()
                try:
                    inner = slot.pool.submit(function)
                except BrokenProcessPool as error:  # it was killed while it was idle
                    self._drop(slot)
                    future.set_exception(error)
                    continue
                inner.add_done_callback(partial(self._done, slot, future))

    def _start(self) -> Slot:
        self._started = self._started or self._context.Event()
        receiver, sender = self._context.Pipe(duplex=False)
        stop = self._context.Event()
        pool = ProcessPoolExecutor(1, self._context, begin, (sender, stop, self._started))
        slot = Slot(pool, receiver, stop)
        self._slots.append(slot)
        return slot

    def _drop(self, slot: Slot) -> None:
        self._slots.remove(slot)
        slot.pool.shutdown(wait=False)

    def _done(self, slot: Slot, future: Future[Any], inner: Future[Any]) -> None:
        """Pass on how a function ended, and give its process the next one."""
        error = None if inner.cancelled() else inner.exception()
        with self._lock:
            if isinstance(error, BrokenProcessPool):
                self._drop(slot)
            else:
                self._free.append(slot)
        if error is not None:
            future.set_exception(error)
        elif inner.cancelled():
            future.set_exception(BrokenProcessPool("the pool was shut down"))
        else:
            future.set_result(inner.result())
        if not self._closed:
            self._dispatch()

    def share(self, value: Any) -> FileData:
        """Write a value into a file, which every worker reads once."""
        return FileData.write(value)

    def release(self, handle: Any) -> None:
        """Remove the file of a value."""
        handle.remove()

    def is_lost(self, error: BaseException) -> bool:
        """Whether the process of a job ended; not where none could be started at all."""
        return isinstance(error, BrokenProcessPool) and self._started.is_set()

    def is_killed(self, error: BaseException) -> bool:
        """Whether no process could be started."""
        return isinstance(error, BrokenProcessPool)

    def lost_advice(self) -> str:
        """Return why processes end early, and what to do."""
        return (
            "it was killed, perhaps for lack of memory, or a script of your own starts the study "
            'outside of if __name__ == "__main__"; try fewer jobs at a time'
        )

    def reported(self) -> list[tuple[int, int, int]]:
        """Return the steps that workers have reported since the last call."""
        with self._lock:
            return [step for slot in self._slots for step in slot.reported()]

    def stop(self, futures: Iterable[Future[Any]]) -> None:
        """Stop jobs at their next step, and wait until they have."""
        running = [future for future in futures if not future.cancel()]
        with self._lock:
            asked = [slot for slot in self._slots if slot not in self._free]
            for slot in asked:
                slot.stop.set()
        wait(running)
        for slot in asked:
            slot.stop.clear()
        self.reported()  # of jobs that nobody asks about

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes."""
        with self._lock:
            self._closed = True
            slots, waiting = list(self._slots), list(self._waiting)
            if cancel_futures:
                self._waiting.clear()
                for future, _ in waiting:
                    future.cancel()
        for slot in slots:
            slot.pool.shutdown(wait=wait, cancel_futures=cancel_futures)


def begin(steps: Any, stop: Any, started: Any) -> None:
    """Prepare a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides
    end_with_parent()
    open_channel(steps, stop)
    started.set()


def end_with_parent() -> None:
    """Exit at once when the parent of this process ends; call it in a process of a pool."""
    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)  # nobody is left to read a result or an error

    threading.Thread(target=wait, daemon=True, name="end-with-parent").start()
