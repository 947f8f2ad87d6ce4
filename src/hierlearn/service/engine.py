"""Engine: an Executor that runs the jobs of a study to the end, though workers may be killed.

Jobs are pure: a job that was lost with its worker runs again, up to RETRIES times, and the result
is that of the run which ended; Ray and Dask see to that themselves. Results are yielded as they
come, for the caller to store.
"""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import threading
import traceback
from collections import OrderedDict
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection, get_all_start_methods, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hierlearn.errors import HierlearnError, arg, unknown_name
from hierlearn.files.writing import remove
from hierlearn.registry import imported

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from multiprocessing.context import BaseContext

    OnStep = Callable[[int, int, int], None]  # the number of the job, the step, all steps


RETRIES = 3  # times that a job runs again after its worker was killed
POLL_SECONDS = 0.2  # between two looks at what workers report
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


@dataclass(frozen=True)
class Job:
    """A job of a study: ``function(data, *args, on_step=...)``.

    Attributes:
        function: of a module that workers can import.
        data: what many jobs share, such as a dataset; sent to each worker once.
        args: what is its own.
    """

    function: Callable[..., Any]
    data: Any
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The end of a job.

    Attributes:
        number: of the job, from 0, in the order in which jobs were given.
        value: what the function returned.
        error: what it raised.
    """

    number: int
    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


# ---------------------------------------------------------------------- in the worker

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
    """An exception that a job raised, with its traceback in the worker."""

    error: BaseException
    trace: str


@dataclass
class Data:
    """What stands for a value in jobs: each worker loads it once.

    Attributes:
        load: returns the value; pickled along with the job.
        key: unique for a value that was shared.
    """

    load: Callable[[], Any]
    key: str = field(default_factory=lambda: uuid4().hex)

    def get(self) -> Any:
        """Return the value; the last ones are kept."""
        if self.key not in _kept:
            _kept[self.key] = self.load()
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
        return _kept[self.key]


def pickled(value: Any) -> bytes:
    """Return a value as bytes, in the newest format."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


class SentData(Data):
    """A value that goes along with every job; jobs in the process that shared it need no copy."""

    def __init__(self, value: Any) -> None:
        super().__init__(lambda: value)
        self.sent = b""

    def get(self) -> Any:
        """Return the value itself."""
        return self.load()

    def __reduce__(self) -> Any:
        self.sent = self.sent or pickled(self.load())
        return Data, (partial(pickle.loads, self.sent), self.key)


class FileData(Data):
    """A value in a temporary file, for workers of the same machine."""

    def __init__(self, value: Any) -> None:
        handle, self.path = tempfile.mkstemp(prefix="hierlearn-", suffix=".pickle")
        with os.fdopen(handle, "wb") as file:
            pickle.dump(value, file, protocol=pickle.HIGHEST_PROTOCOL)
        super().__init__(partial(read_pickle, self.path))

    def remove(self) -> None:
        """Remove the file."""
        remove(Path(self.path))


def read_pickle(path: str) -> Any:
    """Return the value in a file that the caller of this job has written."""
    return pickle.loads(Path(path).read_bytes())


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

    def on_step(step: int, of: int) -> None:
        if _channel["stop"].is_set():
            raise StoppedError
        if step == of or step % max(1, of // REPORTS) == 0:
            _channel["steps"].send((number, step, of))

    with _one_at_a_time:
        value = data.get() if isinstance(data, Data) else data
        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        try:
            return function(value, *args, on_step=on_step if _channel else None)
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # it cannot be sent, but its text can
                return Failure(RuntimeError(f"{type(error).__name__}: {error}"), trace)
            return Failure(error.with_traceback(None), trace)


# ---------------------------------------------------------------------- engines


@dataclass(eq=False)
class SharedData:
    """The data of jobs that run: what stands for it in a job, and how many of them need it."""

    value: Any
    handle: Any
    jobs: int = 0


class Engine(Executor):
    """An Executor that runs the jobs of killed workers again, and sends data to each worker once.

    Attributes:
        name: in messages.
        workers: how many jobs run at a time.
        ahead: jobs per worker that are submitted before the first has ended.
        threads: how many threads torch uses in a job; None leaves that to the workers.
        killed_errors: what a job raises that was run again in vain.
        advice: why jobs are lost here, and what to do.
    """

    name = "executor"
    workers = 1
    ahead = 2
    threads: int | None = None
    killed_errors: tuple[type[BaseException], ...] = ()
    advice = (
        "it was killed, perhaps for lack of memory, and again when {name} repeated the job; give "
        "each worker more memory"
    )

    def share(self, value: Any) -> Any:
        """Return what stands for a value in a job: a Data, or what the engine resolves.

        By default the value goes along with every job.
        """
        return SentData(value)

    def release(self, handle: Any) -> None:
        """Forget a value that was shared."""

    def stop(self, futures: Iterable[Future[Any]]) -> None:
        """Stop jobs that nobody waits for."""
        for future in futures:
            future.cancel()

    def reported(self) -> list[tuple[int, int, int]]:
        """Return the steps that workers have reported since the last call."""
        return []

    def run(
        self, jobs: Iterable[Job], on_step: OnStep | None = None
    ) -> Generator[Outcome, None, None]:
        """Run jobs, and yield how each ended as soon as it has.

        Args:
            jobs: taken as workers become free, so they may be made on the way.
            on_step: called with the number of the job, the step and the number of steps.
        """
        waiting = enumerate(jobs)
        running: dict[Future[Any], tuple[int, SharedData]] = {}
        shared: list[SharedData] = []
        try:
            while True:
                while len(running) < self.ahead * self.workers:
                    number, job = next(waiting, (-1, None))
                    if job is None:
                        break
                    data = next((one for one in shared if one.value is job.data), None)
                    if data is None:
                        for unused in [one for one in shared if not one.jobs]:
                            shared.remove(unused)
                            self.release(unused.handle)
                        data = SharedData(job.data, self.share(job.data))
                        shared.append(data)
                    data.jobs += 1
                    words = (job.function, number, data.handle, job.args, self.threads)
                    try:
                        future = self.submit(call, *words)
                    except self.killed_errors as error:
                        future = Future()
                        future.set_exception(error)
                    running[future] = number, data
                if not running:
                    return
                ended, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                if on_step is not None:
                    for step in self.reported():
                        on_step(*step)
                for future in ended:
                    number, data = running.pop(future)
                    data.jobs -= 1
                    outcome = self._outcome(number, future)
                    if on_step is not None and outcome.error is None:
                        on_step(number, 1, 1)
                    yield outcome
        finally:
            self.stop(list(running))
            for one in shared:
                with suppress(Exception):
                    self.release(one.handle)

    def _outcome(self, number: int, future: Future[Any]) -> Outcome:
        try:
            value = future.result()
        except self.killed_errors as error:
            lost = HierlearnError(
                f"a job was lost with its worker: {self.advice.format(name=self.name)}; the same "
                f"command continues with what is missing"
            )
            lost.__cause__ = error
            return Outcome(number, error=lost)
        if isinstance(value, Failure):
            value.error.__cause__ = RemoteTraceback(value.trace)
            return Outcome(number, error=value.error)
        return Outcome(number, value)


class Serial(Engine):
    """Jobs one after the other, in this process, each when its result is asked for."""

    name = "serial"

    def run(
        self, jobs: Iterable[Job], on_step: OnStep | None = None
    ) -> Generator[Outcome, None, None]:
        """Run jobs, and yield how each ended."""
        for number, job in enumerate(jobs):
            report = None if on_step is None else partial(on_step, number)
            try:
                value = job.function(job.data, *job.args, on_step=report)
            except Exception as error:
                yield Outcome(number, error=error)
            else:
                yield Outcome(number, value)


class PlainEngine(Engine):
    """Any other Executor; data goes along with every job, since it can be sent in no other way.

    Args:
        executor: of ``concurrent.futures``, or like it; it is not shut down here.
    """

    killed_errors = (BrokenExecutor,)
    advice = "the executor is broken for good; open a new one"

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.workers = getattr(executor, "_max_workers", None) or 8

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Pass a function on."""
        return self._executor.submit(fn, *args, **kwargs)


# ---------------------------------------------------------------------- processes of this machine


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


def begin(steps: Any, stop: Any, started: Any) -> None:
    """Prepare a worker process; it ends at once when its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides
    parent = parent_process()

    def end_with_parent() -> None:
        connection.wait([parent.sentinel])  # type: ignore[union-attr]
        os._exit(1)  # nobody is left to read a result or an error

    if parent is not None:
        threading.Thread(target=end_with_parent, daemon=True, name="end-with-parent").start()
    _channel.update(steps=steps, stop=stop)
    started.set()


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


class ProcessEngine(Engine):
    """Processes of this machine.

    A process that trains alone on one core does not wait for another core, so on a CPU several
    processes of few threads finish sooner than one process of many. Each worker is a thread of this
    process with a process of its own: where that is killed, the thread runs its job again in
    another one, and the jobs of the others go on.

    Args:
        address: None; other engines have one.
        workers: how many; one per core, at most MAX_JOBS, if None.
        gpu: whether jobs use a GPU.
    """

    name = "processes"
    killed_errors = (BrokenProcessPool,)
    advice = (
        "it was killed, perhaps for lack of memory, or a script of your own starts the study "
        'outside of if __name__ == "__main__"; try fewer jobs at a time'
    )

    def __init__(
        self, address: str | None = None, workers: int | None = None, *, gpu: bool = False
    ) -> None:
        del address
        self.workers = workers or default_jobs(MAX_JOBS, "cuda" if gpu else "cpu")
        self.threads = max(1, count_cores() // self.workers)
        self._context = start_context(gpu)
        self._started = self._context.Event()  # whether any worker ever was
        self._workers = ThreadPoolExecutor(self.workers, "hierlearn-jobs")
        self._lock = threading.Lock()
        self._idle: list[Slot] = []
        self._busy: list[Slot] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function in the next process that is free."""
        return self._workers.submit(self._run_in_process, partial(fn, *args, **kwargs))

    def _run_in_process(self, function: Callable[[], Any]) -> Any:
        """Return what a function returns in an idle process, or in one that is started."""
        for left in reversed(range(RETRIES + 1)):
            with self._lock:
                slot = self._idle.pop() if self._idle else self._start()
                self._busy.append(slot)
            is_alive = True
            try:
                return slot.pool.submit(function).result()
            except BrokenProcessPool:
                is_alive = False
                slot.pool.shutdown(wait=False)
                if not left or not self._started.is_set():  # none could be started at all
                    raise
            finally:
                with self._lock:
                    self._busy.remove(slot)
                    self._idle += [slot] * is_alive
        raise AssertionError

    def _start(self) -> Slot:
        receiver, sender = self._context.Pipe(duplex=False)
        stop = self._context.Event()
        pool = ProcessPoolExecutor(1, self._context, begin, (sender, stop, self._started))
        return Slot(pool, receiver, stop)

    def share(self, value: Any) -> FileData:
        """Write a value into a file, which every worker reads once."""
        return FileData(value)

    def release(self, handle: Any) -> None:
        """Remove the file of a value."""
        handle.remove()

    def reported(self) -> list[tuple[int, int, int]]:
        """Return the steps that workers have reported since the last call."""
        steps = []
        with self._lock:
            for slot in self._busy + self._idle:
                with suppress(EOFError, OSError):  # it was killed
                    while slot.steps.poll():
                        steps.append(slot.steps.recv())
        return steps

    def stop(self, futures: Iterable[Future[Any]]) -> None:
        """Stop jobs at their next step, and wait until they have."""
        running = [future for future in futures if not future.cancel()]
        with self._lock:
            busy = list(self._busy)
        for slot in busy:
            slot.stop.set()
        wait(running)
        for slot in busy:
            slot.stop.clear()
        self.reported()  # of jobs that nobody asks about

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes."""
        self._workers.shutdown(wait=wait, cancel_futures=cancel_futures)
        for slot in self._busy + self._idle:
            slot.pool.shutdown(wait=wait)


# ---------------------------------------------------------------------- opening

# Classes that are called with the address, the number of workers, and whether jobs use a GPU.
ENGINES = {
    "processes": "hierlearn.service.engine:ProcessEngine",
    "dask": "hierlearn.service.clusters:DaskEngine",
    "ray": "hierlearn.service.clusters:RayEngine",
}


def check_engine(engine: str, address: str | None, workers: int | None) -> None:
    """Raise on what cannot be opened; the arguments are those of ``open_executor``."""
    if engine not in ENGINES:
        raise HierlearnError(unknown_name("engine", engine, ENGINES))
    if workers is not None and workers < 1:
        raise HierlearnError(f"{arg('workers')} must be at least 1, not {workers}")
    if workers is not None and address is not None:
        raise HierlearnError(
            f"{arg('address')} names a cluster with workers of its own, {address!r}, so "
            f"{arg('workers', workers)} is of no use; leave it out"
        )
    if address is not None and engine == "processes":
        raise HierlearnError(
            f"{arg('address')} needs an engine with workers elsewhere, 'dask' or 'ray', and "
            f"{address!r} was given for 'processes'"
        )


@contextmanager
def open_executor(
    engine: str = "processes",
    address: str | None = None,
    workers: int | None = None,
    *,
    gpu: bool = False,
) -> Iterator[Executor]:
    """Open an executor for studies; what was started for it ends with the block.

    Args:
        engine: a name of ENGINES.
        address: of a running cluster; None starts workers on this machine.
        workers: how many workers are started on this machine; one per core if None.
        gpu: whether jobs use a GPU.
    """
    check_engine(engine, address, workers)
    opened: Executor = imported(ENGINES[engine])(address, workers, gpu=gpu)
    try:
        yield opened
    finally:
        opened.shutdown(cancel_futures=True)


@contextmanager
def engine_of(executor: Executor | int, *, gpu: bool = False) -> Iterator[Engine]:
    """Open the engine of what was given as ``executor=``; one that is open stays open.

    Args:
        executor: an Executor, or how many jobs to run at a time on this machine.
        gpu: whether jobs use a GPU.
    """
    if isinstance(executor, bool) or not isinstance(executor, (int, Executor)):
        raise HierlearnError(
            f"executor must be an Executor of concurrent.futures, or the number of jobs at a time, "
            f"not {executor!r}"
        )
    if isinstance(executor, Executor):
        yield as_engine(executor)
    elif executor < 1:
        raise HierlearnError(f"executor must be at least 1 job at a time, not {executor}")
    elif executor == 1:
        yield Serial()
    else:
        with open_executor("processes", workers=executor, gpu=gpu) as opened:
            yield as_engine(opened)


def as_engine(executor: Executor) -> Engine:
    """Return an executor as an engine; Dask's own is known as such."""
    if isinstance(executor, Engine):
        return executor
    if type(executor).__module__.startswith("distributed."):
        from hierlearn.service.clusters import DaskEngine

        return DaskEngine(client=executor._client)  # type: ignore[attr-defined]
    return PlainEngine(executor)


@contextmanager
def use_executor(executor: Executor | int) -> Iterator[None]:
    """Let trainings with effort "best" in this block run their parts on an executor.

    Args:
        executor: any Executor, or how many processes of this machine train at a time.
    """
    from hierlearn.pipeline.blend import use_workers

    with engine_of(executor) as engine, use_workers(engine):
        yield
