"""Executors by name: where the jobs of studies run. An engine is a file and a line of ENGINES."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.service.engines.engine import Engine, Serial
from hierlearn.service.engines.worker import SentData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def open_processes(address: str | None, workers: int | None, gpu: bool) -> Engine:  # noqa: ARG001
    """Start processes on this machine."""
    from hierlearn.service.engines.process_executor import ProcessEngine

    return ProcessEngine(workers, gpu=gpu)


def open_dask(address: str | None, workers: int | None, gpu: bool) -> Engine:  # noqa: ARG001
    """Connect to a Dask cluster, or start one on this machine; its workers see all their GPUs."""
    from hierlearn.service.engines.dask_executor import DaskEngine

    return DaskEngine(address, workers)


def open_ray(address: str | None, workers: int | None, gpu: bool) -> Engine:
    """Connect to a Ray cluster, or start Ray on this machine."""
    from hierlearn.service.engines.ray_executor import RayEngine

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
        raise HierlearnError(f"workers must be at least 1, not {workers}")
    if workers is not None and address is not None:
        raise HierlearnError(
            f"address names a cluster with workers of its own, {address!r}, so workers={workers} "
            f"is of no use; leave it out"
        )
    if address is not None and engine == "processes":
        raise HierlearnError(
            f"address needs an engine with workers elsewhere, 'dask' or 'ray', and {address!r} was "
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
        from hierlearn.service.engines.dask_executor import DaskEngine

        return DaskEngine(client=executor._client)  # type: ignore[attr-defined]
    return PlainEngine(executor)


@contextmanager
def use_executor(executor: Executor | int) -> Iterator[None]:
    """Let trainings with effort "best" in this block run their parts on an executor.

    Args:
        executor: any Executor, or how many processes of this machine train at a time.
    """
    from hierlearn.pipeline.workers import lend

    with engine_of(executor) as engine, lend(engine):
        yield
