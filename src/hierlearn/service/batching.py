"""Batcher: many requests joined into one batch for the model, with a bounded queue.

Requests wait in a queue that holds a limited number of rows; one thread takes as many of them as
fit into a batch and computes these together. While it computes, the next ones gather, so batches
grow with the load; ``max_wait`` lets a batch wait for more even where the thread is idle.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Task = TypeVar("Task")
MEMORY = 0.8  # how much the measured speed keeps of what it was, per batch
LONGEST_WAIT = 60  # seconds that a client is told to wait, at most


class Overloaded(Exception):  # noqa: N818  (not an error of the program)
    """A request was not accepted, or waited too long.

    Args:
        message: one sentence.
        retry_after: the seconds after which to try again.
    """

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Limits:
    """What a queue accepts.

    Attributes:
        max_batch: rows that are computed together.
        max_wait: seconds that a batch waits for more rows.
        max_queue: rows that may wait.
        timeout: seconds that a request may take.
    """

    max_batch: int = 1024
    max_wait: float = 0.0
    max_queue: int = 16384
    timeout: float = 30.0


@dataclass
class Waiting(Generic[Task]):
    """A task in the queue."""

    task: Task
    rows: int
    future: asyncio.Future[Any]
    arrived: float = field(default_factory=time.monotonic)


class Batcher(Generic[Task]):
    """A queue with a thread that computes what is in it.

    ``start``, ``submit`` and ``close`` are called in one event loop.

    Args:
        compute: returns the result of every task, or the exception to raise for it. Where it
            raises, the tasks are computed one by one.
        limits: of the queue.
        on_batch: called with the rows and the seconds of every batch.
    """

    def __init__(
        self,
        compute: Callable[[list[Task]], Sequence[Any]],
        limits: Limits,
        on_batch: Callable[[int, float], None] | None = None,
    ) -> None:
        self.compute, self.limits, self.on_batch = compute, limits, on_batch
        self.rows = 0  # that wait
        self.speed = 0.0  # rows per second, as measured last
        self._queue: deque[Waiting[Task]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="hierlearn-batches")

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Compute what waits, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)

    @property
    def retry_after(self) -> int:
        """The seconds after which what waits now should be done."""
        expected = math.ceil(self.rows / self.speed) if self.speed else 1
        return min(max(expected, 1), LONGEST_WAIT)

    def check_room(self, rows: int = 1) -> None:
        """Raise where so many rows do not fit into the queue."""
        if self.rows + rows > self.limits.max_queue:
            raise Overloaded(
                f"the server is busy: {self.rows:,} rows wait, and at most "
                f"{self.limits.max_queue:,} may; try again in {self.retry_after} s",
                self.retry_after,
            )

    def submit(self, task: Task, rows: int) -> asyncio.Future[Any]:
        """Put a task into the queue, and return the future of its result.

        Args:
            task: what ``compute`` takes.
            rows: how many rows it counts for.

        Raises:
            Overloaded: if the queue is full; the future raises it after the timeout.
        """
        assert self._loop is not None
        future: asyncio.Future[Any] = self._loop.create_future()
        with self._changed:
            self.check_room(rows)
            self._queue.append(Waiting(task, rows, future))
            self.rows += rows
            self._changed.notify()
        timer = self._loop.call_later(self.limits.timeout, self._expire, future)
        future.add_done_callback(lambda _: timer.cancel())
        return future

    def _expire(self, future: asyncio.Future[Any]) -> None:
        """Give up on a task that took too long."""
        if not future.done():
            future.set_exception(
                Overloaded(
                    f"no answer within {self.limits.timeout:g} s; send fewer rows, or try again in "
                    f"{self.retry_after} s",
                    self.retry_after,
                )
            )

    # ------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while True:
            batch = self._take()
            if batch is None:
                return
            if batch:
                self._compute(batch)

    def _take(self) -> list[Waiting[Task]] | None:
        """Wait for tasks, and return those of the next batch; None at the end."""
        most, wait = self.limits.max_batch, self.limits.max_wait
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            if not self._queue:
                return None
            end = self._queue[0].arrived + wait
            while wait and self.rows < most and not self._closed:
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            batch = [self._queue.popleft()]
            total = batch[0].rows
            while self._queue and total + self._queue[0].rows <= most:
                batch.append(self._queue.popleft())
                total += batch[-1].rows
            self.rows -= total
        return [one for one in batch if not one.future.done()]  # done: timed out, or given up

    def _compute(self, batch: list[Waiting[Task]]) -> None:
        rows, begin = sum(one.rows for one in batch), time.monotonic()
        results = self._results([one.task for one in batch])
        seconds = max(time.monotonic() - begin, 1e-6)
        now = rows / seconds
        self.speed = MEMORY * self.speed + (1 - MEMORY) * now if self.speed else now
        if self.on_batch is not None:
            self.on_batch(rows, seconds)
        self._deliver([one.future for one in batch], results)

    def _results(self, tasks: list[Task]) -> Sequence[Any]:
        """Return the results of tasks; what makes one of them fail does not touch the others."""
        try:
            return self.compute(tasks)
        except Exception as error:  # raised in the coroutine of the request
            if len(tasks) == 1:
                return [error]
        return [self._results([task])[0] for task in tasks]

    def _deliver(self, futures: list[asyncio.Future[Any]], results: Sequence[Any]) -> None:
        assert self._loop is not None

        def deliver() -> None:
            for future, result in zip(futures, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

        try:
            self._loop.call_soon_threadsafe(deliver)
        except RuntimeError:  # the loop was closed: the server was told to stop at once
            return
