"""Engine: an Executor that runs the jobs of a study to the end, though workers may be killed.

Jobs are pure: a job that was lost with its worker is submitted again, up to RETRIES times, and the
result is that of the run which ended. Results are yielded as they come, for the caller to store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, plural
from hierlearn.service.engines.worker import Failure, call

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

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
