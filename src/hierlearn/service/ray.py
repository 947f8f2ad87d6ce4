"""Ray: jobs as tasks of a Ray cluster, or of processes that Ray starts on this machine.

Ray runs the task of a killed worker again itself, up to RETRIES times. Data is put into the object
store once, and read once by each worker process.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.service.engine import RETRIES, Data, Engine
from hierlearn.service.processes import count_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


SECONDS = 10  # to wait for an answer of a cluster
VARIABLES = {  # where they are not set
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
        extra = "ray[data]"
        raise HierlearnError(
            f"the engine ray needs Ray ({error}); install it with: pip install '{extra}'"
        ) from None
    return ray


def connect(ray: Any, address: str | None, cpus: int | None = None) -> None:
    """Connect to a cluster, or start Ray on this machine, quietly; SIGTERM stays as it was.

    Args:
        ray: the package.
        address: of a cluster: "auto", or ``ray://host:port``; None to start one here.
        cpus: how many cores a cluster that is started here may use; None for all.
    """
    check_answers(address)
    here: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False}
    here["_node_ip_address"] = "127.0.0.1"
    try:
        with same_sigterm():
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level="ERROR",
                **({} if address else here),
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise no_cluster(address or "this machine", error) from None


@contextmanager
def ray_session(address: str | None = None, cpus: int | None = None) -> Iterator[Any]:
    """Connect to Ray, or start it on this machine; yield the module.

    Where this process is connected already, that stays as it is. The arguments are those of
    ``connect``.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    connect(ray, address, cpus)
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def same_sigterm() -> Iterator[None]:
    """Keep the handler of SIGTERM, in whose place Ray puts its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check_answers(address: str | None) -> None:
    """Raise where nothing answers at ``host:port``, for which Ray itself would wait for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS).close()
        except OSError as error:
            raise no_cluster(str(address), error) from None


def no_cluster(address: str, error: Exception) -> HierlearnError:
    """Return the error of an address at which there is no cluster."""
    reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return HierlearnError(
        f"no Ray cluster answers at {address} ({reason}); check the address, or leave it out to "
        f"start Ray on this machine"
    )


@dataclass
class StoredData(Data):
    """A value in the object store; the reference stays in a list, which Ray does not resolve."""

    references: list[Any] = field(default_factory=list)

    def load(self) -> Any:
        """Read the value."""
        import ray

        return pickle.loads(ray.get(self.references[0]))


class RayEngine(Engine):
    """Tasks of Ray.

    Args:
        address: of a cluster; "auto" is the one of this machine. If None, Ray is started here,
            unless it is in this process.
        workers: how many jobs run at a time, where Ray is started here; one per core if None.
        gpus: how many GPUs each job gets.
    """

    name = "ray"
    loses_data = True

    def __init__(
        self, address: str | None = None, workers: int | None = None, *, gpus: float = 0
    ) -> None:
        ray = import_ray()
        self._ray = ray
        self._own = not ray.is_initialized()
        if self._own:
            connect(ray, address, workers or count_cores())
        self._gpus = gpus
        self.workers = int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1) // (gpus or 1))
        if address is None and self._own:
            self.threads = max(1, count_cores() // self.workers)
        options: dict[str, Any] = {"num_cpus": 1, "num_gpus": gpus, "max_retries": RETRIES}
        self._remote = ray.remote(**options)(invoke)
        self._references: dict[Future[Any], Any] = {}
        errors = ray.exceptions
        self._lost = (errors.ObjectLostError, errors.NodeDiedError)
        self._killed = (errors.WorkerCrashedError, errors.OutOfMemoryError)

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

    def share(self, value: Any) -> StoredData:
        """Put a value into the object store."""
        pickled = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        return StoredData(references=[self._ray.put(pickled)])

    def release(self, handle: Any) -> None:
        """Let the object store forget a value."""
        handle.references.clear()

    def is_lost(self, error: BaseException) -> bool:
        """Whether the data of a job was lost with the machine that held it."""
        return isinstance(error, self._lost)

    def is_killed(self, error: BaseException) -> bool:
        """Whether Ray gave a job up."""
        return isinstance(error, self._killed)

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


def invoke(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Call a function in a task; arrays of a pickled result can be written, as Ray's cannot."""
    return pickle.dumps(fn(*args, **kwargs), protocol=pickle.HIGHEST_PROTOCOL)
