"""The connection to Ray: a cluster at an address, or processes that Ray starts on this machine."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Iterator

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
