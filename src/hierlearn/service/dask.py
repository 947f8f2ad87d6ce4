"""Dask: jobs on the workers of a cluster, by ssh, Slurm, Kubernetes or on this machine.

Dask runs the job of a killed worker again itself, up to ``distributed.scheduler.allowed-failures``
times (3 by default). Data is scattered to all workers of a cluster, and scattered again where it
was lost with the workers that held it; workers of this machine read it from a file.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.service.engine import Engine, FileData
from hierlearn.service.processes import count_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CONNECT_SECONDS = 30
COUNT_SECONDS = 2  # between two questions for the number of workers


class DaskEngine(Engine):
    """The workers of a Dask cluster.

    Args:
        address: of its scheduler; a cluster of this machine is started if None.
        workers: how many, on this machine; one per core if None.
        client: one that is connected already, which is not closed here.
    """

    name = "dask"

    def __init__(
        self, address: str | None = None, workers: int | None = None, *, client: Any = None
    ) -> None:
        distributed = import_distributed()
        self._own, self._cluster = client is None, None
        if client is None and address is None:
            workers = workers or count_cores()
            self._cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.ERROR,  # a worker that is replaced is no news
            )
            self.threads = max(1, count_cores() // workers)
        self.loses_data = self._cluster is None
        self.client = client or connect(distributed, self._cluster or address)
        self._executor = self.client.get_executor(pure=False)
        self._lost = (CancelledError, distributed.client.FutureCancelledError)
        self._killed = distributed.KilledWorker
        self._workers, self._counted = 1, float("-inf")

    @property
    def workers(self) -> int:  # type: ignore[override]
        """How many worker processes there are; each runs one job at a time."""
        if time.monotonic() - self._counted > COUNT_SECONDS:  # more may join
            self._workers = len(self.client.scheduler_info(n_workers=-1)["workers"])
            self._counted = time.monotonic()
        return max(1, self._workers)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function on a worker; a future of Dask among the arguments is resolved there."""
        found: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        return found

    def share(self, value: Any) -> Any:
        """Send a value to every worker."""
        if self._cluster is not None:
            return FileData.write(value)
        return self.client.scatter([value], broadcast=True, hash=False)[0]

    def release(self, handle: Any) -> None:
        """Let the workers forget a value."""
        if isinstance(handle, FileData):
            handle.remove()
        else:
            handle.release()

    def is_lost(self, error: BaseException) -> bool:
        """Whether the data of a job was lost with the workers that held it."""
        return isinstance(error, self._lost)

    def is_killed(self, error: BaseException) -> bool:
        """Whether Dask gave a job up."""
        return isinstance(error, self._killed)

    def stop(self, futures: Iterable[Future[Any]]) -> None:
        """Cancel jobs; one that a worker has begun ends there, and its result is dropped."""
        for future in futures:
            future.cancel()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close what was opened here: the connection, and a cluster of this machine."""
        self._executor.shutdown(wait=wait and not cancel_futures)
        if self._own:
            self.client.close()
        if self._cluster is not None:
            self._cluster.close()


def import_distributed() -> Any:
    """Return the package, or raise an error that says how to install it."""
    try:
        import distributed
    except ImportError as error:
        raise HierlearnError(
            "engine 'dask' needs distributed; install it with: pip install distributed"
        ) from error
    return distributed


def connect(distributed: Any, address: Any) -> Any:
    """Return a client of a cluster; raise where nobody answers."""
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise HierlearnError(
            f"no Dask scheduler answers at {address!r} ({error}); start one with: dask scheduler"
        ) from error
    return client
