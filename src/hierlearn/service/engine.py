"""Engine: an Executor that runs the jobs of a study to the end, though workers may be killed.

Jobs are pure: a job that was lost with its worker is submitted again, up to RETRIES times, and the
result is that of the run which ended. Results are yielded as they come, for the caller to store.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
import traceback
from abc import ABC, abstractmethod
from collections import OrderedDict
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hierlearn.errors import HierlearnError, arg, plural, unknown_name
from hierlearn.files.writing import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator


RETRIES = 3  # times that a job is submitted again after its worker was killed
POLL_SECONDS = 0.2  # between two looks at what workers report
AHEAD = 2  # jobs per worker that are submitted before the first has ended


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


@dataclass(eq=False)
class SharedData:
    """What jobs in flight share.

    Attributes:
        value: the data.
        handle: what stands for it in a job.
        jobs: how many jobs in flight need it.
    """

    value: Any
    handle: Any
    jobs: int = 0


@dataclass
class Flight:
    """A job that was submitted.

    Attributes:
        number: of the job.
        job: what to do.
        shared: its data.
        handle: what stood for the data when it was submitted.
        lost: how often it was lost.
    """

    number: int
    job: Job
    shared: SharedData
    handle: Any = None
    lost: int = 0


class Engine(Executor, ABC):
    """An Executor that knows about lost jobs, and sends data to each worker once.

    Attributes:
        name: in messages.
        workers: how many jobs run at a time.
        threads: how many threads torch uses in a job; None leaves that to the workers.
        loses_data: whether data that was shared may be lost with a worker.
    """

    name = "executor"
    workers = 1
    threads: int | None = None
    loses_data = False

    @abstractmethod
    def share(self, value: Any) -> Any:
        """Return what stands for a value in a job: a Data, or what the engine resolves."""

    def release(self, handle: Any) -> None:
        """Forget a value that was shared."""

    def is_lost(self, error: BaseException) -> bool:  # noqa: ARG002
        """Whether a job has to be submitted again."""
        return False

    def is_killed(self, error: BaseException) -> bool:  # noqa: ARG002
        """Whether the engine has tried a job again itself, and gave up."""
        return False

    def stop(self, futures: Iterable[Future[Any]]) -> None:
        """Stop jobs that nobody waits for."""
        for future in futures:
            future.cancel()

    def reported(self) -> list[tuple[int, int, int]]:
        """Return the steps that workers have reported since the last call."""
        return []

    def lost_advice(self) -> str:
        """Return why jobs may be lost here, and what to do."""
        return (
            f"it was killed, perhaps for lack of memory, and again when {self.name} repeated the "
            f"job; give each worker more memory"
        )

    # ------------------------------------------------------------------ running jobs

    def run(
        self, jobs: Iterable[Job], on_step: Callable[[int, int, int], None] | None = None
    ) -> Generator[Outcome, None, None]:
        """Run jobs, and yield how each ended as soon as it has.

        Args:
            jobs: taken as workers become free, so they may be made on the way.
            on_step: called with the number of the job, the step and the number of steps.
        """
        source, flights = enumerate(jobs), Flights(self)
        try:
            more = True
            while more or flights.running:
                while more and len(flights.running) < AHEAD * self.workers:
                    number, job = next(source, (-1, None))
                    if job is None:
                        more = False
                    else:
                        flights.submit(number, job)
                finished, _ = wait(
                    flights.running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED
                )
                if on_step is not None:
                    for step in self.reported():
                        on_step(*step)
                for future in finished:
                    outcome = flights.land(future)
                    if outcome is not None:
                        if on_step is not None and outcome.error is None:
                            on_step(outcome.number, 1, 1)
                        yield outcome
        finally:
            flights.end()


class Flights:
    """The jobs that an engine runs now, with what they share."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.running: dict[Future[Any], Flight] = {}
        self.shared: list[SharedData] = []

    def submit(self, number: int, job: Job) -> None:
        """Submit a job, its data before it."""
        shared = next((one for one in self.shared if one.value is job.data), None)
        if shared is None:
            self._release()
            shared = SharedData(job.data, self.engine.share(job.data))
            self.shared.append(shared)
        shared.jobs += 1
        self._fly(Flight(number, job, shared))

    def _fly(self, flight: Flight) -> None:
        job, flight.handle = flight.job, flight.shared.handle
        args = (job.function, flight.number, flight.handle, job.args, self.engine.threads)
        try:
            future = self.engine.submit(call, *args)
        except Exception as error:
            if not self.engine.is_killed(error):
                raise
            future = Future()
            future.set_exception(error)
        self.running[future] = flight

    def land(self, future: Future[Any]) -> Outcome | None:
        """Return how a job ended; None where it was lost and is submitted again."""
        flight, engine = self.running.pop(future), self.engine
        try:
            value = future.result()
        except BaseException as error:
            if not (engine.is_lost(error) or engine.is_killed(error)):
                raise
            flight.lost += 1
            if engine.is_lost(error) and flight.lost <= RETRIES:
                if engine.loses_data and flight.handle is flight.shared.handle:
                    flight.shared.handle = engine.share(flight.shared.value)
                self._fly(flight)
                return None
            times = f" {plural(flight.lost, 'time')}" if flight.lost > 1 else ""
            lost = HierlearnError(
                f"a job was lost{times} with its worker: {engine.lost_advice()}; the same command "
                f"continues with what is missing"
            )
            lost.__cause__ = error
            flight.shared.jobs -= 1
            return Outcome(flight.number, error=lost)
        flight.shared.jobs -= 1
        if isinstance(value, Failure):
            return Outcome(flight.number, error=value.raised())
        return Outcome(flight.number, value)

    def _release(self) -> None:
        """Forget what no job in flight needs."""
        for one in [one for one in self.shared if not one.jobs]:
            self.shared.remove(one)
            self.engine.release(one.handle)

    def end(self) -> None:
        """Stop what runs, and forget what was shared."""
        self.engine.stop(list(self.running))
        for one in self.shared:
            with suppress(Exception):
                self.engine.release(one.handle)


class Serial(Engine):
    """Jobs one after the other, in this process."""

    name = "serial"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function at once."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future

    def share(self, value: Any) -> Any:
        """Return the value itself."""
        return value

    def run(
        self, jobs: Iterable[Job], on_step: Callable[[int, int, int], None] | None = None
    ) -> Generator[Outcome, None, None]:
        """Run jobs, each when its result is asked for."""
        for number, job in enumerate(jobs):
            report = None if on_step is None else numbered(on_step, number)
            try:
                value = job.function(job.data, *job.args, on_step=report)
            except Exception as error:
                yield Outcome(number, error=error)
            else:
                yield Outcome(number, value)


def numbered(on_step: Callable[[int, int, int], None], number: int) -> Callable[[int, int], None]:
    """Return the callback of one job."""
    return lambda step, of: on_step(number, step, of)


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


def open_processes(address: str | None, workers: int | None, gpu: bool) -> Engine:  # noqa: ARG001
    """Start processes on this machine."""
    from hierlearn.service.processes import ProcessEngine

    return ProcessEngine(workers, gpu=gpu)


def open_dask(address: str | None, workers: int | None, gpu: bool) -> Engine:  # noqa: ARG001
    """Connect to a Dask cluster, or start one on this machine; its workers see all their GPUs."""
    from hierlearn.service.dask import DaskEngine

    return DaskEngine(address, workers)


def open_ray(address: str | None, workers: int | None, gpu: bool) -> Engine:
    """Connect to a Ray cluster, or start Ray on this machine."""
    from hierlearn.service.ray import RayEngine

    return RayEngine(address, workers, gpus=1 if gpu else 0)


# Called with the address, the number of workers, and whether jobs use a GPU.
ENGINES: dict[str, Callable[[str | None, int | None, bool], Engine]] = {
    "processes": open_processes,
    "dask": open_dask,
    "ray": open_ray,
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
            f"{address!r} was "
            f"given for 'processes'"
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
    opened = ENGINES[engine](address, workers, gpu)
    try:
        yield opened
    finally:
        opened.shutdown(cancel_futures=True)


class PlainEngine(Engine):
    """Any other Executor; data goes along with every job, since it can be sent in no other way.

    Args:
        executor: of ``concurrent.futures``, or like it; it is not shut down here.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.workers = getattr(executor, "_max_workers", None) or 8

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Pass a function on."""
        return self._executor.submit(fn, *args, **kwargs)

    def share(self, value: Any) -> SentData:
        """Return the value, ready to go along with jobs."""
        return SentData(value=value)

    def is_killed(self, error: BaseException) -> bool:
        """Whether the executor is broken, for good."""
        return isinstance(error, BrokenExecutor)

    def lost_advice(self) -> str:
        """Return what to do about a broken executor."""
        return "the executor is broken for good; open a new one"


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
        from hierlearn.service.dask import DaskEngine

        return DaskEngine(client=executor._client)  # type: ignore[attr-defined]
    return PlainEngine(executor)


@contextmanager
def use_executor(executor: Executor | int) -> Iterator[None]:
    """Let trainings with effort "best" in this block run their parts on an executor.

    Args:
        executor: any Executor, or how many processes of this machine train at a time.
    """
    from hierlearn.pipeline.blend import lend

    with engine_of(executor) as engine, lend(engine):
        yield
