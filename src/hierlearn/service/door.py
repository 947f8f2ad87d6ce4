"""The door of the server: whom it answers, how long it waits, and how it says no.

A connection is closed where the header of a request is not complete in time, where it is idle, and
where an answer is not fetched; when as many are open as may be, the one that has been idle longest
makes room. A request must name a host that the server goes by, so that a page of another site,
whose name somebody lets point to this address, learns nothing. What is left of a body is read and
dropped before an answer ends: a client that still sends would see a reset instead of it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hierlearn.service.model import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY = "*"  # every host is answered
HOST = re.compile(rb"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


def host_name(value: bytes) -> str | None:
    """Return the name or address in a Host header, in lower case; None where it is none."""
    match = HOST.fullmatch(value.strip())
    if match is None:
        return None
    return (match[1] or match[2]).decode("ascii").lower().rstrip(".") or None


class Door:
    """Middleware that looks at the host of requests, and reads what they left of their bodies.

    Args:
        app: what answers.
        hosts: names and addresses that are answered beside those of the loopback and the address
            that a connection came to; ``*`` for all.
        seconds: in which the rest of a body must arrive.
    """

    def __init__(self, app: Any, hosts: Iterable[str] = (), seconds: float = 30.0) -> None:
        self.app, self.seconds = app, seconds
        self.hosts = frozenset(one.lower().strip("[]").rstrip(".") for one in (*LOOPBACK, *hosts))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if has_body(scope["headers"]):
            waits = any(name == b"expect" for name, _ in scope["headers"])
            rest = Rest(receive, send, self.seconds, waits=waits)
            receive, send = rest.receive, rest.send
        given = [value for name, value in scope["headers"] if name == b"host"]
        host = host_name(given[0]) if len(given) == 1 else None
        if host is None:
            said = "the request needs one Host header with a name or an address"
            await refuse(send, 400, said)
        elif not self.answers(host, scope.get("server")):
            name = host[:80]
            said = f"this server does not go by the name {name!r}, which is not among its hosts"
            await refuse(send, 421, said)
        else:
            await self.app(scope, receive, send)

    def answers(self, host: str, server: tuple[str, int] | None) -> bool:
        """Whether a host is answered: by name, or as the address that the connection came to."""
        if host in self.hosts or ANY in self.hosts:
            return True
        try:
            return ipaddress.ip_address(host) == ipaddress.ip_address((server or ("",))[0])
        except ValueError:
            return False


def has_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request announces a body."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
        for name, value in headers
    )


async def refuse(send: Any, code: int, message: str) -> None:
    """Answer a request with one sentence."""
    content = to_json({"error": message})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class Rest:
    """The rest of a body: it is read and dropped before the answer ends.

    Args:
        receive: of the request.
        send: of the request.
        seconds: in which the rest must arrive.
        waits: whether the client sends no body unless it is told to go on.
    """

    def __init__(self, receive: Any, send: Any, seconds: float, *, waits: bool) -> None:
        self._receive, self._send, self.seconds = receive, send, seconds
        self.is_read = waits

    async def receive(self) -> Any:
        """Return the next part of the body."""
        message = await self._receive()
        self.is_read = not message.get("more_body", False)  # also where the client has gone
        return message

    async def send(self, message: Any) -> None:
        """Send a part of the answer; the last one when the body was read or given up."""
        if message["type"] == "http.response.start":
            self.is_read |= (b"connection", b"close") in message.get("headers", ())
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_last and not self.is_read:
            await self._send({**message, "more_body": True})
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._drop(), self.seconds)
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _drop(self) -> None:
        while not self.is_read:
            await self.receive()


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
