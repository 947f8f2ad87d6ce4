"""Server: a socket, uvicorn, and an orderly end.

The first SIGTERM or Ctrl-C makes the server not ready; after ``drain`` seconds it accepts no more
connections, finishes what it has accepted, and ends with exit code 0, or with 1 where something
took longer than ``stop_timeout``. A second signal ends it at once.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

from hierlearn.errors import HierlearnError
from hierlearn.service.app import make_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hierlearn.service.batching import Service


def watched(protocol: Any, seconds: float, most: int) -> Any:
    """Return a protocol of uvicorn whose connections are closed when they keep others waiting.

    Args:
        protocol: the class that uvicorn would use.
        seconds: for a header, between two requests, and for a client to take what was sent.
        most: connections at once; the one that is idle longest makes room for another.
    """
    idle: dict[Any, None] = {}  # the connections without a request, in order of time

    class Watched(protocol):  # type: ignore[misc]
        """A connection that is closed where nothing happens."""

        _timer: Any = None
        _left = 0  # bytes that wait to be fetched

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()
            if len(self.connections) >= most:
                first = next(iter(idle))
                if first is not self:
                    first.give_up()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self in idle and self._is_busy():
                self._stop()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self._is_busy() and not self.transport.is_closing():
                self._wait()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._start()

        def resume_writing(self) -> None:
            super().resume_writing()
            if self not in idle:
                self._stop()

        def give_up(self) -> None:
            """Close the connection, whatever it has not fetched."""
            self._stop()
            self.transport.abort()

        def _expire(self) -> None:
            before, self._left = self._left, self.transport.get_write_buffer_size()
            if 0 < self._left < before:  # a slow client, but one that fetches
                self._timer = self.loop.call_later(seconds, self._expire)
            else:
                self.give_up()

        def _is_busy(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _wait(self) -> None:
            idle.pop(self, None)
            idle[self] = None
            self._start()

        def _start(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._left = self.transport.get_write_buffer_size()
            self._timer = self.loop.call_later(seconds, self._expire)

        def _stop(self) -> None:
            idle.pop(self, None)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Watched


BACKLOG = 2048
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, because asyncio turns off the delay of small packets only where it sees TCP.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except (OSError, ValueError, TypeError) as error:
        made.close()
        reason = getattr(error, "strerror", None) or error
        raise HierlearnError(
            f"cannot listen on {host}, port {port}: {reason}; name another with host and port"
        ) from None
    return made


def serve(service: Service, on_started: Callable[[str], None]) -> int:
    """Answer requests until a signal ends the server, and return its exit code.

    Args:
        service: what answers.
        on_started: called with the URL once requests are welcome.
    """

    class Server(uvicorn.Server):
        """Uvicorn's server, with its own treatment of signals."""

        cut_off = False
        stopping = False

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            host, port = bound.getsockname()[:2]
            on_started(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

        async def shutdown(self, sockets: Any = None) -> None:
            service.ready = False
            begin = time.monotonic()
            await super().shutdown(sockets=sockets)
            self.cut_off = time.monotonic() - begin >= limit

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {one: signal.signal(one, self.handle_exit) for one in SIGNALS}
            try:
                yield
            finally:
                for one, handler in before.items():
                    signal.signal(one, handler)

        def handle_exit(self, sig: int, frame: Any) -> None:
            del frame
            if self.stopping:
                os._exit(128 + sig)
            self.stopping, service.ready = True, False
            if settings.drain:
                timer = threading.Timer(settings.drain, self._stop)
                timer.daemon = True
                timer.start()
            else:
                self._stop()

        def _stop(self) -> None:
            self.should_exit = True

    settings = service.settings
    limit = max(1, round(settings.stop_timeout))  # uvicorn takes an integer
    bound = listen(settings.host, settings.port)
    config = uvicorn.Config(
        make_app(service),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="on",
        backlog=BACKLOG,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=limit,
    )
    config.load()
    config.http_protocol_class = watched(
        config.http_protocol_class, settings.body_timeout, settings.max_connections
    )
    server = Server(config)
    server.run(sockets=[bound])
    return 1 if server.cut_off else 0
