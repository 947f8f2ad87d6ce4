"""The HTTP application: what each path answers."""

from __future__ import annotations

import asyncio
import hmac
import html
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

from hierlearn.errors import HierlearnError, plural
from hierlearn.service import openapi
from hierlearn.service.batching import Overloaded
from hierlearn.service.door import Door
from hierlearn.service.metrics import CONTENT_TYPE
from hierlearn.service.model import Task, to_json
from hierlearn.service.requests import (
    EXPLAIN,
    LARGE,
    MOST_EVIDENCE,
    PREDICT,
    REMEMBER,
    Refusal,
    parse_body,
    read_count,
    read_ids,
    read_labels,
    read_options,
)
from hierlearn.service.service import Addition, Question

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from hierlearn.service.model import Options, ServedModel
    from hierlearn.service.rows import Columns
    from hierlearn.service.service import Service

    Handler = Callable[[Any], Awaitable[Any]]
    Read = TypeVar("Read")

CLOSE = {"connection": "close"}  # the rest of the body is not waited for
BODIES = 16  # times the largest body that may be held while bodies arrive
EXPLAINED_TOGETHER = 8  # rows of a task of /explain, so that others get their turn
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


def find_fastapi() -> Any:
    """Return FastAPI, or raise with what to install."""
    try:
        import fastapi
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise HierlearnError(
            f"serving needs fastapi and uvicorn ({error}); install them with: pip install fastapi "
            f"uvicorn"
        ) from None
    return fastapi


def make_app(service: Service, hosts: Sequence[str] = ()) -> Any:
    """Return the application of a service, with an OpenAPI description of its model.

    Args:
        service: the model and its queues.
        hosts: by which the server goes beside its addresses.
    """
    fastapi = find_fastapi()
    from hierlearn import __version__

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        service.start()
        yield
        await asyncio.to_thread(service.close)

    name = service.model.pipeline.config.get("name") or "model"
    app = fastapi.FastAPI(
        title=f"hierlearn: {name}",
        version=__version__,
        description="Answers are the columns of hierlearn predict.",
        lifespan=lifespan,
        docs_url=None,  # the pages of FastAPI load scripts from a CDN
        redoc_url=None,
    )
    Paths(service, app, fastapi).add()
    app.add_middleware(Door, hosts=hosts, seconds=service.settings.body_timeout)
    app.add_middleware(Measured, service=service, paths={route.path for route in app.routes})
    app.add_exception_handler(404, not_found)
    app.add_exception_handler(405, not_found)
    return app


async def not_found(request: Any, error: Any) -> Any:
    """Answer a path or a method that does not exist."""
    from fastapi.responses import Response

    said = {404: f"there is no {request.url.path[:80]}; see /docs", 405: "use another method"}
    content = to_json({"error": said.get(error.status_code, "not found")})
    headers = {**(getattr(error, "headers", None) or {}), "content-type": "application/json"}
    return Response(content, error.status_code, headers)


class Measured:
    """Middleware that counts requests and their seconds.

    Args:
        app: what answers.
        service: whose metrics.
        paths: those with a line of their own; others are counted together.
    """

    def __init__(self, app: Any, service: Service, paths: set[str]) -> None:
        self.app, self.service, self.paths = app, service, paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, code = time.perf_counter(), 500

        async def sent(message: Any) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, sent)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.service.metrics.request(path, code, time.perf_counter() - begin)


class Paths:
    """The paths of the application.

    Args:
        service: the model and its queues.
        app: a FastAPI application, which gets the paths.
        fastapi: the package.
    """

    def __init__(self, service: Service, app: Any, fastapi: Any) -> None:
        self.service, self.app = service, app
        self.buffered = 0  # bytes of bodies that are being read
        # One thread, so that many large bodies do not become many more objects at a time.
        self.readers = ThreadPoolExecutor(1, "hierlearn-bodies")
        self.response = fastapi.responses.Response
        self.request = fastapi.Request

    def add(self) -> None:
        """Add all paths."""
        model, settings = self.service.model, self.service.settings
        most, usual = settings.max_rows, (400, 408, 413, 422, 503)
        answers, explained = openapi.answer_schema(model), openapi.explanation_schema(model)
        self._post(
            "/predict",
            self.predict,
            "Predict: one answer per row, as hierlearn predict gives it.",
            openapi.predict_body(model, most),
            openapi.responses(openapi.answers_schema(answers), *usual),
        )
        self._post(
            "/explain",
            self.explain,
            "Explain: the answers with what they rest on, as hierlearn explain shows it.",
            openapi.explain_body(model, settings.max_explained),
            openapi.responses(openapi.answers_schema(explained), *usual),
        )
        self._post(
            "/remember",
            self.remember,
            "Remember: labeled rows, and new classes, without training. Needs a bearer token.",
            openapi.remember_body(model, most),
            openapi.responses({"type": "object"}, *usual, 401, 403),
        )
        self._get("/model", self.describe, "What the model is and reads.")
        self._get("/hierarchy", self.hierarchy, "The classes: path, title, level, parents.")
        self._get("/health", self.health, "Whether the process is alive.")
        self._get("/ready", self.ready, "Whether requests are welcome; 503 before a stop.")
        self._get("/metrics", self.metrics, "Counts and seconds in the format of Prometheus.")
        self.app.add_api_route("/docs", self.page, methods=["GET"], include_in_schema=False)
        welcome = self._answered(self.welcome)
        self.app.add_api_route("/", welcome, methods=["GET"], include_in_schema=False)

    def _post(self, path: str, handler: Handler, summary: str, body: Any, found: Any) -> None:
        self.app.add_api_route(
            path,
            self._answered(handler),
            methods=["POST"],
            summary=summary,
            responses=found,
            openapi_extra=body,
            operation_id=path[1:],
        )

    def _get(self, path: str, handler: Handler, summary: str) -> None:
        self.app.add_api_route(
            path, self._answered(handler), methods=["GET"], summary=summary, operation_id=path[1:]
        )

    def _answered(self, handler: Handler) -> Handler:
        """Return a handler that answers errors with one sentence."""

        async def answered(request: Any) -> Any:
            try:
                return await handler(request)
            except Refusal as refusal:
                return self._error(refusal.code, refusal.message, dict(refusal.headers))
            except Overloaded as error:
                return self._error(503, str(error), {"retry-after": str(error.retry_after)})
            except HierlearnError as error:
                return self._error(422, str(error))
            except asyncio.CancelledError:  # the time for finishing requests is over
                return self._error(503, "the server stops", CLOSE)
            except Exception:  # a fault of ours
                traceback.print_exc()
                return self._error(500, "internal error; the log of the server has the details")

        answered.__annotations__ = {"request": self.request, "return": self.response}
        return answered

    def _error(self, code: int, message: str, headers: dict[str, str] | None = None) -> Any:
        content = to_json({"error": " ".join(message.split())})
        return self.response(content, code, headers, "application/json")

    def _json(self, content: bytes) -> Any:
        return self.response(content, media_type="application/json")

    # ------------------------------------------------------------------ the body

    async def _asked(
        self,
        request: Any,
        known: Sequence[str],
        most: int,
        read: Callable[[dict[str, Any]], Read],
    ) -> Read:
        """Return what is read from the body of a request; a large one is read in a thread.

        Args:
            request: with a JSON object.
            known: the fields that it may have.
            most: rows.
            read: called with the object.
        """
        seconds = self.service.settings.body_timeout
        parts: list[bytes] = []
        try:
            try:
                await asyncio.wait_for(self._receive(request, parts), seconds)
            except asyncio.TimeoutError:
                raise Refusal(408, f"the body did not arrive within {seconds:g} s", CLOSE) from None
            body = b"".join(parts)
            if len(body) <= LARGE:
                return read(parse_body(body, known, most))
            return await asyncio.get_running_loop().run_in_executor(
                self.readers, lambda: read(parse_body(body, known, most))
            )
        finally:
            self.buffered -= sum(map(len, parts))

    async def _receive(self, request: Any, parts: list[bytes]) -> None:
        """Receive the body of a request; raise on one that is too large."""
        from starlette.requests import ClientDisconnect

        most, size = self.service.settings.max_bytes, 0
        length = request.headers.get("content-length", "")
        too_large = Refusal(413, f"the body has more than {most:,} bytes; send fewer rows")
        if length.isdecimal() and int(length[:20]) > most:
            raise too_large
        try:
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise too_large
                parts.append(part)
                self.buffered += len(part)
                if self.buffered > BODIES * most:
                    raise Overloaded("too many bodies arrive at once; try again in 1 s", 1)
        except ClientDisconnect:
            raise Refusal(400, "the connection was closed before the end of the body") from None

    def _columns(self, model: ServedModel, body: dict[str, Any], most: int) -> tuple[Columns, int]:
        """Return the rows of a request as columns, and how many there are."""
        given = body["rows"]
        if isinstance(given, list) and len(given) > most:
            raise Refusal(
                413, f"the request has {plural(len(given), 'row')}; send at most {most:,} at once"
            )
        return model.inputs.columns(given), len(given)

    # ------------------------------------------------------------------ POST

    async def predict(self, request: Any) -> Any:
        """Answer rows."""
        queue = self.service.predicting
        queue.check_room()  # before anything is read
        model, settings = self.service.model, self.service.settings

        def read(body: dict[str, Any]) -> tuple[list[Task], int]:
            options = read_options(body)
            columns, rows = self._columns(model, body, settings.max_rows)
            model.decision(options)  # raises on what the model cannot do
            return [*pieces(columns, rows, options, settings.limits.max_batch)], rows

        parts, rows = await self._asked(request, PREDICT, settings.max_rows, read)
        queue.check_room(rows)
        return await self._joined([queue.submit(Question(model, one), len(one)) for one in parts])

    async def explain(self, request: Any) -> Any:
        """Answer rows with what the answers rest on."""
        queue = self.service.explaining
        queue.check_room()
        model, most = self.service.model, self.service.settings.max_explained

        def read(body: dict[str, Any]) -> tuple[list[Task], int, int]:
            count, options = read_count(body, "count", 3, MOST_EVIDENCE), read_options(body)
            columns, rows = self._columns(model, body, most)
            model.decision(options)
            return [*pieces(columns, rows, options, EXPLAINED_TOGETHER)], rows, count

        parts, rows, count = await self._asked(request, EXPLAIN, most, read)
        queue.check_room(rows)
        return await self._joined(
            [queue.submit(Question(model, one, count), len(one)) for one in parts]
        )

    async def _joined(self, futures: list[asyncio.Future[bytes]]) -> Any:
        """Return the response of the parts of a request."""
        try:
            found = [await one for one in futures]
        finally:
            for one in futures:
                one.cancel()  # where another part has failed
        return self._json(b'{"answers":[' + b",".join(found) + b"]}")

    async def remember(self, request: Any) -> Any:
        """Add labeled rows to the memory."""
        self._check_token(request.headers.get("authorization", ""))
        queue = self.service.remembering
        model, most = self.service.model, self.service.settings.max_rows

        def read(body: dict[str, Any]) -> tuple[Addition, int]:
            columns, rows = self._columns(model, body, most)
            return Addition(Task(columns), read_labels(body, rows), read_ids(body, rows)), rows

        found = await queue.submit(*await self._asked(request, REMEMBER, most, read))
        return self._json(to_json(found))

    def _check_token(self, given: str) -> None:
        """Raise where the token of a request is not that of the server."""
        wanted = self.service.settings.token
        if wanted is None:
            raise Refusal(
                403, "the server was started without a token, so nothing may be remembered"
            )
        kind, _, token = given.partition(" ")
        same = hmac.compare_digest(token.strip().encode(), wanted.encode())
        if not same or kind.lower() != "bearer":
            raise Refusal(
                401,
                "remember needs the token of the server: Authorization: Bearer TOKEN",
                {"www-authenticate": "Bearer"},
            )

    # ------------------------------------------------------------------ GET

    async def describe(self, _: Any) -> Any:
        """Describe the model."""
        return self._json(to_json(self.service.model.describe()))

    async def hierarchy(self, _: Any) -> Any:
        """List the classes."""
        return self._json(await asyncio.to_thread(self.service.model.hierarchy_json))

    async def health(self, _: Any) -> Any:
        """Say that the process is alive."""
        return self._json(b'{"status":"alive"}')

    async def ready(self, _: Any) -> Any:
        """Say whether requests are welcome."""
        if not self.service.ready:
            raise Refusal(503, "the server is about to stop")
        return self._json(b'{"status":"ready"}')

    async def metrics(self, _: Any) -> Any:
        """Return the metrics."""
        return self.response(self.service.metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def page(self) -> Any:
        """Return the page that shows the OpenAPI description; it loads nothing from elsewhere."""
        return self.response(page(), media_type="text/html", headers=PAGE_HEADERS)

    async def welcome(self, request: Any) -> Any:
        """Return a page that says what the model is and how to ask it."""
        text = welcome_page(self.service.model, str(request.base_url))
        return self.response(text, media_type="text/html", headers=PAGE_HEADERS)


WELCOME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body{{max-width:44rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 system-ui,sans-serif;
color:#222;background:#fff}}pre{{overflow:auto;padding:.8rem;background:#f2f2f2}}
@media(prefers-color-scheme:dark){{body{{color:#eee;background:#161616}}pre{{background:#262626}}
a{{color:#8ab4f8}}}}</style></head>
<body><h1>{title}</h1>
<p>A hierlearn model of {classes} on {levels}, which reads {inputs}: <a href="docs">try it</a>,
or see <a href="model">what it reads</a>, <a href="hierarchy">its classes</a> and <a
href="metrics">its metrics</a>.</p>
<pre>curl -H 'content-type: application/json' \\
  -d '{example}' \\
  {address}predict</pre>
</body></html>
"""


def welcome_page(model: ServedModel, address: str) -> str:
    """Return the HTML of the first page; what comes from the model and the client is escaped."""
    hierarchy = model.pipeline.hierarchy
    rows = {"rows": [openapi.example_row(model.inputs)]}
    shown = {
        "title": f"hierlearn: {model.pipeline.config.get('name') or 'model'}",
        "classes": plural(len(hierarchy), "class", "classes"),
        "levels": plural(hierarchy.depth, "level"),
        "inputs": model.inputs.described,
        "address": address,
        "example": to_json(rows).decode().replace("'", "'\\''"),
    }
    return WELCOME.format(**{name: html.escape(text, quote=False) for name, text in shown.items()})


def page() -> str:
    """Return the HTML of /docs."""
    return resources.files("hierlearn.service").joinpath("docs.html").read_text("utf-8")


def pieces(columns: Columns, rows: int, options: Options, most: int) -> Iterator[Task]:
    """Yield the rows of a request in parts of at most ``most`` rows."""
    if rows <= most:
        yield Task(columns, options)
        return
    for begin in range(0, rows, most):
        some = {name: cells[begin : begin + most] for name, cells in columns.items()}
        yield Task(some, options, begin)
