"""Engines of clusters: Ray and Dask, running elsewhere or started on this machine.

Both run the job of a killed worker again themselves: Ray up to RETRIES times, Dask up to
``distributed.scheduler.allowed-failures`` times (3 by default). Data is sent once: Ray puts it into
its object store, Dask keeps it in the task that the data of workers comes from; Dask's workers of
this machine read it from a file.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import threading
import time
import warnings
from concurrent.futures import CancelledError, Future
from concurrent.futures import wait as wait_for
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.service.engine import RETRIES, Data, Engine, FileData, count_cores, pickled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


SECONDS = 10  # to wait for an answer of a Ray cluster
DASK_SECONDS = 30
COUNT_SECONDS = 2  # between two questions for the number of Dask's workers
VARIABLES = {  # of Ray, where they are not set
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def import_ray() -> Any:
    """Return the package, or raise an error that says how to install it."""
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise HierlearnError(
            f"the engine ray needs Ray ({error}); install it with: pip install ray"
        ) from None
    return ray


def connect_ray(ray: Any, address: str | None, cpus: int | None = None) -> None:
    """Connect to a cluster, or start Ray on this machine, quietly; SIGTERM stays as it was.

    Args:
        ray: the package.
        address: of a cluster: "auto", or ``ray://host:port``; None to start one here.
        cpus: how many cores a cluster that is started here may use; None for all.
    """
    here: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False}
    here["_node_ip_address"] = "127.0.0.1"
    try:
        # Ray itself would wait for minutes where nothing answers at host:port.
        host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
        if colon and port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS).close()
        before = signal.getsignal(signal.SIGTERM)  # in whose place Ray puts its own
        try:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level="ERROR",
                **({} if address else here),
            )
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)
    except (OSError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise HierlearnError(
            f"no Ray cluster answers at {address or 'this machine'} ({reason}); check the address, "
            f"or leave it out to start Ray on this machine"
        ) from None


def load_stored(references: list[Any]) -> Any:
    """Read a value from the object store of Ray, which does not resolve references in a list."""
    import ray

    return pickle.loads(ray.get(references[0]))


def invoke(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Call a function in a task; arrays of a pickled result can be written, as Ray's cannot."""
    return pickled(fn(*args, **kwargs))


class RayEngine(Engine):
    """Tasks of Ray.

    Args:
        address: of a cluster; "auto" is the one of this machine. If None, Ray is started here,
            unless it is in this process.
        workers: how many jobs run at a time, where Ray is started here; one per core if None.
        gpu: whether each job gets a GPU.
    """

    name = "ray"

    def __init__(
        self, address: str | None = None, workers: int | None = None, *, gpu: bool = False
    ) -> None:
        ray = self._ray = import_ray()
        self._own = not ray.is_initialized()
        if self._own:
            connect_ray(ray, address, workers or count_cores())
        self.resources: dict[str, float] = ray.cluster_resources()
        self.workers = int(self.resources.get("GPU" if gpu else "CPU", 1))
        if address is None and self._own:
            self.threads = max(1, count_cores() // self.workers)
        self._options: dict[str, Any] = {"num_cpus": 1, "max_retries": RETRIES}
        self._remote = ray.remote(**self._options, num_gpus=int(gpu))(invoke)
        self._references: dict[Future[Any], Any] = {}
        errors = ray.exceptions
        self.killed_errors = (
            *(errors.WorkerCrashedError, errors.OutOfMemoryError),
            *(errors.ObjectLostError, errors.NodeDiedError),
        )

    def set_resources(self, gpus: float, workers: int) -> None:
        """Let so many jobs run at a time, each with so many GPUs, in processes that stay."""
        self.workers, self.ahead = workers, 1
        more = {"num_gpus": gpus, "max_calls": 0}
        self._remote = self._ray.remote(**self._options, **more)(invoke)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function as a task."""
        future: Future[Any] = Future()
        reference = self._remote.remote(fn, args, kwargs)
        self._references[future] = reference
        future.set_running_or_notify_cancel()

        def done(inner: Future[Any]) -> None:
            self._references.pop(future, None)
            error = inner.exception()
            if error is None:
                future.set_result(pickle.loads(inner.result()))
            else:  # Ray wraps what a task raised
                future.set_exception(getattr(error, "cause", None) or error)

        reference.future().add_done_callback(done)
        return future

    def share(self, value: Any) -> Data:
        """Put a value into the object store."""
        return Data(partial(load_stored, [self._ray.put(pickled(value))]))

    def release(self, handle: Any) -> None:
        """Let the object store forget a value."""
        handle.load.args[0].clear()

    def stop(self, futures: Iterable[Future[Any]]) -> None:
        """Cancel tasks; one that runs is interrupted."""
        for future in futures:
            reference = self._references.get(future)
            if reference is not None:
                self._ray.cancel(reference)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave Ray, and end it where it was started here."""
        if cancel_futures:
            self.stop(list(self._references))
        elif wait:
            wait_for(list(self._references))
        if self._own:
            self._ray.shutdown()


class DaskEngine(Engine):
    """The workers of a Dask cluster.

    Args:
        address: of its scheduler; a cluster of this machine is started if None.
        workers: how many, on this machine; one per core if None.
        gpu: whether jobs use a GPU; Dask's workers see all of theirs.
        client: one that is connected already, which is not closed here.
    """

    name = "dask"

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        *,
        gpu: bool = False,
        client: Any = None,
    ) -> None:
        del gpu
        try:
            distributed: Any = import_module("distributed")
        except ImportError as error:
            raise HierlearnError(
                "engine 'dask' needs distributed; install it with: pip install distributed"
            ) from error
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
        if client is None:
            at = self._cluster or address
            try:
                client = distributed.Client(at, timeout=DASK_SECONDS, set_as_default=False)
            except (OSError, ValueError) as error:
                raise HierlearnError(
                    f"no Dask scheduler answers at {at!r} ({error}); start one with: dask scheduler"
                ) from error
        self.client = client
        self._executor = client.get_executor(pure=False)
        lost = (CancelledError, distributed.client.FutureCancelledError)
        self.killed_errors = (distributed.KilledWorker, *lost)
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
        future: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        return future

    def share(self, value: Any) -> Any:
        """Send a value to the scheduler; what workers made of it is made again where it is lost."""
        if self._cluster is not None:
            return FileData(value)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # once
            return self.client.submit(pickle.loads, pickled(value), pure=False)

    def release(self, handle: Any) -> None:
        """Let the workers forget a value."""
        if isinstance(handle, FileData):
            handle.remove()
        else:
            handle.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Close what was opened here: the connection, and a cluster of this machine."""
        self._executor.shutdown(wait=wait and not cancel_futures)
        if self._own:
            self.client.close()
        if self._cluster is not None:
            self._cluster.close()
