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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)

from hierlearn import __version__
from hierlearn.errors import HierlearnError
from hierlearn.files.writing import WriteError
from hierlearn.pipeline.remember import MemoryFolder
from hierlearn.service.model import Task, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hierlearn.service.model import ServedModel


Work = TypeVar("Work")
MEMORY = 0.8  # how much the measured speed keeps of what it was, per batch
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = tuple(float(1 << power) for power in range(0, 13, 2))  # 1, 4, ... 4096
disable_created_metrics()  # type: ignore[no-untyped-call]
LONGEST_WAIT = 60  # seconds that a client is told to wait, at most


@dataclass
class Refusal(Exception):  # noqa: N818  (not an error of the program)
    """A request that is answered with an error.

    Attributes:
        code: the HTTP status.
        message: one sentence.
        headers: of the response.
    """

    code: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Overloaded(Refusal):
    """A request was not accepted, or waited too long.

    Args:
        message: one sentence.
        retry_after: the seconds after which to try again.
    """

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(503, message, {"retry-after": str(retry_after)})
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.message


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
class Waiting(Generic[Work]):
    """A task in the queue."""

    task: Work
    rows: int
    future: asyncio.Future[Any]
    arrived: float = field(default_factory=time.monotonic)


class Batcher(Generic[Work]):
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
        compute: Callable[[list[Work]], Sequence[Any]],
        limits: Limits,
        on_batch: Callable[[int, float], None] | None = None,
    ) -> None:
        self.compute, self.limits, self.on_batch = compute, limits, on_batch
        self.rows = 0  # that wait
        self.speed = 0.0  # rows per second, as measured last
        self._queue: deque[Waiting[Work]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="hierlearn-batches")

    def start(self) -> None:
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

    def submit(self, task: Work, rows: int) -> asyncio.Future[Any]:
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

    def _take(self) -> list[Waiting[Work]] | None:
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

    def _compute(self, batch: list[Waiting[Work]]) -> None:
        rows, begin = sum(one.rows for one in batch), time.monotonic()
        results = self._results([one.task for one in batch])
        seconds = max(time.monotonic() - begin, 1e-6)
        now = rows / seconds
        self.speed = MEMORY * self.speed + (1 - MEMORY) * now if self.speed else now
        if self.on_batch is not None:
            self.on_batch(rows, seconds)

        def deliver() -> None:
            for one, result in zip(batch, results, strict=True):
                if one.future.done():
                    continue
                if isinstance(result, Exception):
                    one.future.set_exception(result)
                else:
                    one.future.set_result(result)

        assert self._loop is not None
        with suppress(RuntimeError):  # the loop was closed: the server was told to stop at once
            self._loop.call_soon_threadsafe(deliver)

    def _results(self, tasks: list[Work]) -> Sequence[Any]:
        """Return the results of tasks; what makes one of them fail does not touch the others."""
        try:
            return self.compute(tasks)
        except Exception as error:  # raised in the coroutine of the request
            if len(tasks) == 1:
                return [error]
        return [self._results([task])[0] for task in tasks]


@dataclass(frozen=True)
class ServingSettings:
    """Where a server listens, how it treats requests, and how it ends.

    Attributes:
        host: the address of an interface.
        port: 0 for one that is free.
        allow_host: names by which clients may call the server beside its address and those of the
            loopback; ``*`` for any.
        max_connections: at once.
        drain: seconds between the signal to stop and the end of accepting connections.
        stop_timeout: seconds for what was accepted.
        limits: of the queue of ``/predict``.
        max_rows: rows of a request.
        max_explained: rows of a request to explain, each of which may cost many predictions.
        max_bytes: of the body of a request.
        body_timeout: seconds for a header, for a body, and between two requests of a connection.
        token: what ``/remember`` asks for; None refuses it.
        save_to: the folder of the model, to which ``/remember`` adds; None keeps it in memory.
        trust: whether that folder may name code to import.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    allow_host: tuple[str, ...] = ()
    max_connections: int = 1000
    drain: float = 0.0
    stop_timeout: float = 30.0
    limits: Limits = field(default_factory=Limits)
    max_rows: int = 10_000
    max_explained: int = 100
    max_bytes: int = 16 << 20
    body_timeout: float = 30.0
    token: str | None = None
    save_to: Path | None = None
    trust: bool = False


@dataclass(frozen=True)
class Question:
    """Some rows of a request, and the model that answers all of the request.

    Attributes:
        model: as it was when the request came.
        task: the rows.
        count: how much is shown of what an answer rests on.
    """

    model: ServedModel
    task: Task
    count: int = 0


@dataclass(frozen=True)
class Addition:
    """A task of ``/remember``."""

    task: Task
    labels: Sequence[Sequence[str]]
    ids: Sequence[str] | None


class Service:
    """What the requests of a server share.

    Args:
        model: the model to begin with.
        settings: how requests are treated.

    Attributes:
        model: the model now. A request takes it once, so that all its answers come from one model,
            the old or the new one.
        ready: whether requests are welcome.
    """

    def __init__(self, model: ServedModel, settings: ServingSettings) -> None:
        self.model, self.settings, self.ready = model, settings, False
        limits = settings.limits
        alone = replace(limits, max_batch=1, max_wait=0.0)
        self.registry = CollectorRegistry()
        every: dict[str, Any] = {"namespace": "hierlearn", "registry": self.registry}
        times = {**every, "buckets": SECONDS}
        self.requests = Counter(
            "requests", "Requests by path and status code.", ("path", "code"), **every
        )
        self.latencies = Histogram(
            "request_seconds", "From the request to its answer.", ("path",), **times
        )
        self.rows = Counter("rows", "Rows that were computed.", ("queue",), **every)
        self.batch_rows = Histogram(
            "batch_rows", "Rows that were computed together.", ("queue",), **every, buckets=ROWS
        )
        self.batch_seconds = Histogram(
            "batch_seconds", "What the model took for a batch.", ("queue",), **times
        )
        self.predicting = Batcher(self._predict, limits, partial(self._count, "predict"))
        self.explaining = Batcher(self._explain, alone, partial(self._count, "explain"))
        self.remembering = Batcher(self._remember, alone, partial(self._count, "remember"))
        self.queues = (self.predicting, self.explaining, self.remembering)
        for name, text, value in (
            ("queue_rows", "Rows that wait to be predicted.", lambda: self.predicting.rows),
            (
                "remembered_rows",
                "Rows that the model remembers.",
                lambda: self.model.remembered_rows,
            ),
            ("ready", "Whether requests are welcome.", lambda: self.ready),
        ):
            Gauge(name, text, **every).set_function(value)
        self.info = Info("model", "The model that is served.", **every)

    def start(self) -> None:
        """Start the threads; called in the event loop."""
        for one in self.queues:
            one.start()
        self.ready = True

    def warm_up(self) -> None:
        """Predict an invented row, so that the first request does not wait for imports."""
        model = self.model
        with suppress(HierlearnError):  # the invented row may not fit
            model.predict([Task(model.inputs.columns([model.inputs.example()]))])

    def close(self) -> None:
        """End the threads, after what they have accepted."""
        self.ready = False
        for one in self.queues:
            one.close(self.settings.limits.timeout)

    def metrics(self) -> tuple[bytes, str]:
        """Return all metrics in the text format of Prometheus, and its content type."""
        pipeline = self.model.pipeline
        self.info.info(
            {
                "name": pipeline.config.get("name", "model"),
                "classes": str(len(pipeline.hierarchy)),
                "fingerprint": pipeline.hierarchy.fingerprint[:12],
                "version": __version__,
            }
        )
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def _count(self, queue: str, rows: int, seconds: float) -> None:
        self.rows.labels(queue).inc(rows)
        self.batch_rows.labels(queue).observe(rows)
        self.batch_seconds.labels(queue).observe(seconds)

    # ------------------------------------------------------------------ in the threads

    def _predict(self, questions: list[Question]) -> list[bytes]:
        """Return the answers as JSON without the brackets of a list."""
        bodies = [b""] * len(questions)
        for model in {id(one.model): one.model for one in questions}.values():
            places = [place for place, one in enumerate(questions) if one.model is model]
            answers = model.predict([questions[place].task for place in places])
            for place, own in zip(places, answers, strict=True):
                bodies[place] = to_json(own)[1:-1]
        return bodies

    def _explain(self, questions: list[Question]) -> list[bytes]:
        return [to_json(one.model.explain(one.task, one.count))[1:-1] for one in questions]

    def _remember(self, tasks: list[Addition]) -> list[dict[str, Any]]:
        """Make a model that remembers more, write it where that is asked for, and swap it in."""
        (one,) = tasks
        model, growth = self.model.grown(one.task.columns, one.labels, one.ids)
        folder = self.settings.save_to
        if folder is not None:
            try:
                # One more shard; what other processes have added to the folder stays there.
                with MemoryFolder.open(folder, trust=self.settings.trust) as memory:
                    rows = self.model.inputs.chunk(one.task.columns).inputs
                    memory.remember(rows, one.labels, ids=one.ids)
            except WriteError as error:
                raise Refusal(500, f"{error}; nothing was remembered") from error
        self.model = model
        return [
            {
                "rows": growth.rows,
                "known": growth.known,
                "new_classes": list(growth.classes),
                "total": growth.total,
                "saved": folder is not None,
                "repeatable": one.ids is not None,
            }
        ]
