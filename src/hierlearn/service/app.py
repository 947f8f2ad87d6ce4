"""The HTTP application: what each path answers, and whom it answers at all.

A request must name a host that the server goes by, so that a page of another site, whose name
somebody lets point to this address, learns nothing. What is left of a body is read and dropped
before an answer ends: a client that still sends would see a reset instead of it.
"""

from __future__ import annotations

import asyncio
import hmac
import html
import ipaddress
import re
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import fields
from importlib import resources
from inspect import getdoc
from string import Template
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import fastapi
import numpy as np
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from hierlearn import __version__
from hierlearn.datasets.tables.dates import ISO
from hierlearn.datasets.tables.kinds import base_kind, date_format
from hierlearn.decoding import DECODERS
from hierlearn.errors import HierlearnError, plural, shorten, shown, unknown_name
from hierlearn.pipeline.answers import level_column_names
from hierlearn.service.batching import Addition, Overloaded, Question, Refusal
from hierlearn.service.model import Options, Task, to_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

    from hierlearn.service.batching import Batcher, Service
    from hierlearn.service.rows import Columns, Inputs

    Handler = Callable[[Any], Awaitable[Any]]

Body = TypeVar("Body", bound="Rows")
LARGE = 1 << 16  # bytes of a body that is read in a thread of its own
OTHERS = 1000  # lists and objects of a body beside four per row
CLOSE = {"connection": "close"}  # the rest of the body is not waited for
BODIES = 16  # times the largest body that may be held while bodies arrive
EXPLAINED_TOGETHER = 8  # rows of a task of /explain, so that others get their turn
MOST_EVIDENCE = 100  # rows, words or cells behind an answer
LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY = "*"  # every host is answered
HOST = re.compile(rb"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


# ---------------------------------------------------------------------- what a request may hold


Text = Annotated[str, Field(min_length=1)]
TEXT, NUMBER = {"type": "string"}, {"type": "number"}  # in schemas


class Rows(BaseModel):
    """The fields of every request; ``Inputs`` reads the rows."""

    model_config = ConfigDict(strict=True, extra="forbid")

    rows: Any


class DecidedRows(Rows):
    """Rows to decide on."""

    decoder: Optional[str] = Field(
        None, description="instead of the model's own", json_schema_extra={"enum": [*DECODERS]}
    )
    threshold: Optional[float] = Field(
        None, gt=-1e9, lt=1e9, description="of the decoder, such as stop"
    )
    risk: Optional[float] = Field(
        None,
        gt=0,
        lt=1,
        description="the fraction of wrong answers to allow; finds the threshold by the rows of "
        "--calibrate, without which it is refused",
    )

    def options(self) -> Options:
        """Return what is asked for beside the answer."""
        names = {one.name for one in fields(Options)}
        return Options(**self.model_dump(include=names, exclude_none=True))


class PredictBody(DecidedRows):
    """A request to predict."""

    top: Optional[int] = Field(None, ge=1, description="add the most probable classes")
    by_level: bool = Field(False, description="add the class of every level")


class ExplainBody(DecidedRows):
    """A request to explain."""

    count: Optional[int] = Field(3, ge=1, le=MOST_EVIDENCE)


class RememberBody(Rows):
    """A request to remember."""

    labels: list[Text | list[Text]] = Field(description="paths; new ones are added")
    ids: Optional[list[Text]] = Field(None, description="by which rows are named")


MUST = {  # what each field must be, for errors
    "top": "an integer of at least 1",
    "count": "an integer of at least 1",
    "by_level": "true or false",
    "decoder": "a name",
    "threshold": "a number",
    "risk": "a number between 0 and 1",
    "labels": "a list, one entry per row",
    "ids": "a list of texts, one per row",
}


def count_brackets(text: bytes) -> int:
    """Return how many lists and objects begin in a text of JSON, not in its strings.

    In linear time, whatever the text: a regular expression for strings tries every quote of a
    string that does not end.
    """
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    found = np.frombuffer(plain, np.uint8)
    in_string = np.cumsum(found == ord('"'), dtype=np.uint8) & 1  # an odd number of quotes before
    return int((((found == ord("[")) | (found == ord("{"))) & (in_string == 0)).sum())


def parse_body(body: bytes, kind: type[Body], most: int) -> Body:
    """Return the body of a request; raise one sentence about the first thing that is wrong.

    Args:
        body: a JSON object in UTF-8.
        kind: what it must be.
        most: rows. The parser holds the lock of the interpreter, so a large body with more lists or
            objects than these could need is not read.
    """
    bound = 4 * most + OTHERS
    has_many = len(body) > LARGE and body.count(b"[") + body.count(b"{") > bound
    if has_many and count_brackets(body) > bound:
        raise Refusal(
            413,
            f"the body has more lists and objects than rows may have; send at most "
            f"{plural(most, 'row')} at once",
        )
    try:
        content = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        no_number = b"NaN" in body or b"Infinity" in body
        hint = "; give null where a number is missing" if no_number else ""
        raise Refusal(400, f"the body is not JSON in UTF-8: {error}{hint}") from None
    if not isinstance(content, dict):
        what = shown(content)
        raise Refusal(422, f'the body must be an object such as {{"rows": [...]}}, not {what}')
    for field in content:
        if field not in kind.model_fields:
            raise HierlearnError(shorten(unknown_name("field", field, kind.model_fields)))
    if "rows" not in content:
        raise HierlearnError('rows are missing; give {"rows": [...]}')
    try:
        parsed = kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, *place = first["loc"]
        value: Any = content.get(str(name))
        if name == "labels" and place:
            raise HierlearnError(
                f"labels, row {place[0]} (counted from 0): {shown(value[int(place[0])])} is "
                f"neither a path nor a list of paths"
            ) from None
        if first["type"] == "less_than_equal":
            raise HierlearnError(
                f"{name} must be at most {first['ctx']['le']:,}, not {shown(value)}"
            ) from None
        raise HierlearnError(f"{name} must be {MUST[str(name)]}, not {shown(value)}") from None
    if isinstance(parsed.rows, list) and len(parsed.rows) > most:
        rows = plural(len(parsed.rows), "row")
        raise Refusal(413, f"the request has {rows}; send at most {most:,} at once")
    return parsed


# ---------------------------------------------------------------------- how OpenAPI describes it

CELLS: dict[str, dict[str, Any]] = {
    "number": {"type": ["number", "string", "null"], "description": "a number"},
    "category": {"type": ["string", "number", "boolean", "null"], "description": "a category"},
    "text": {"type": ["string", "null"], "description": "a text"},
    "boolean": {"type": ["boolean", "string", "number", "null"], "description": "true or false"},
    "image": {"type": "string", "format": "byte", "description": "an image file in base64"},
}
ANSWERS: dict[str, tuple[Any, str]] = {
    "path": ("string", "the class, or the classes of a set; empty for the root"),
    "class": ("string", "the same by bare name"),
    "title": ("string", "of the class"),
    "probability": (["number", "string"], "of the class"),
    "level": (["integer", "string"], "of the class; 0 for the root"),
    "stopped": ("boolean", "whether the answer is above the terminal classes"),
}
REASONS = {
    400: "The body is not JSON in UTF-8.",
    401: "The token is missing or wrong.",
    403: "The server was started without a token.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or has too many rows.",
    422: "The rows or options do not fit the model; the sentence names the row and the column.",
    503: "The queue is full, or the request waited too long; Retry-After says when to try again.",
}


def objects(properties: dict[str, Any], required: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the schema of an object; all of its fields are required unless some are named."""
    names = properties if required is None else required
    return {"type": "object", "properties": properties, "required": [*names]}


def row_schema(inputs: Inputs) -> dict[str, Any]:
    """Return the schema of a row: an object of columns, a value alone, or either."""
    number = {"type": "number" if inputs.kind == "vectors" else ["number", "null"]}
    vector: dict[str, Any] = {"type": "array", "items": number}
    if inputs.width is not None:
        vector |= {"minItems": inputs.width, "maxItems": inputs.width}

    def cell(kind: str) -> dict[str, Any]:
        if base_kind(kind) == "date":
            form = "YYYY-MM-DD" if date_format(kind) == ISO else date_format(kind)
            return {"type": ["string", "null"], "description": f"a date, {form}"}
        return vector if kind == "vector" else CELLS[kind]

    alone = {"texts": {"type": "string"}, "images": CELLS["image"]}
    alone |= {"numbers": vector, "vectors": vector}
    forms = []
    if inputs.named:
        forms.append(objects({name: cell(kind) for name, kind in inputs.kinds.items()}))
    if inputs.kind in alone:
        forms.append(alone[inputs.kind])
    return forms[0] if len(forms) == 1 else {"oneOf": forms}


def described(service: Service, kind: type[Rows], most: int, *codes: int) -> dict[str, Any]:
    """Return what OpenAPI says of a path: the body, the answer and the refusals.

    Args:
        service: whose model is described.
        kind: of the body.
        most: rows of a request.
        codes: of refusals beside the usual ones.
    """
    model = service.model
    example: dict[str, Any] = {"rows": [model.inputs.example()]}
    answer: dict[str, Any] = {"type": "object"}
    if kind is RememberBody:
        space = model.pipeline.label_space
        example["labels"] = [space.hierarchy.names[int(space.terminals[0])]]
    else:
        names = model.formatter(Options()).names
        own: dict[str, Any] = {
            name: dict(zip(("type", "description"), ANSWERS[name], strict=True)) for name in names
        }
        for begin in (*level_column_names(model.pipeline), "top_1"):
            own[begin] = {"type": "string"}
            own[f"{begin}_probability"] = {"type": ["number", "string", "null"]}
        required = [*names]
        if kind is ExplainBody:
            example["count"] = 3
            name = "rows" if model.has_memory else "parts"
            evidence = objects({"part": TEXT, "effect": NUMBER, "without": NUMBER})
            if model.has_memory:
                row = {"id": TEXT, "weight": NUMBER, "labels": {"type": "array", "items": TEXT}}
                titles = {"titles": TEXT} if model.pipeline.hierarchy.has_titles else {}
                evidence = objects({**row, **titles, "text": TEXT}, row)
            own[name] = {"type": "array", "items": evidence}
            required.append(name)
        item = {
            **objects(own, required),
            "description": "Columns of levels come with by_level, top_1, top_2, ... with top.",
        }
        rows = {"type": "array", "items": item, "description": "one per row, in order"}
        answer = objects({"answers": rows})
    body = kind.model_json_schema()
    body["properties"]["rows"] = {
        "type": "array",
        "items": row_schema(model.inputs),
        "minItems": 1,
        "maxItems": most,
        "description": f"at most {most:,}",
    }
    schemas = dict.fromkeys((400, 408, 413, 422, 503, *codes), objects({"error": TEXT}))
    return {
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {**body, "example": example}}},
            }
        },
        "responses": {
            code: {
                "description": REASONS.get(code, "OK"),
                "content": {"application/json": {"schema": schema}},
            }
            for code, schema in {200: answer, **schemas}.items()
        },
    }


# ---------------------------------------------------------------------- the application


def answer_json(content: Any, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response of JSON; bytes are sent as they are."""
    body = content if isinstance(content, bytes) else to_json(content)
    return Response(body, code, headers, "application/json")


def answer_error(code: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return a refusal of one sentence."""
    return answer_json({"error": " ".join(message.split())}, code, headers)


def answered(handler: Handler) -> Handler:
    """Return a handler that answers errors with one sentence."""

    async def answer(request: fastapi.Request) -> Response:
        try:
            content = await handler(request)
        except Refusal as refusal:
            return answer_error(refusal.code, refusal.message, dict(refusal.headers))
        except HierlearnError as error:
            return answer_error(422, str(error))
        except asyncio.CancelledError:  # the time for finishing requests is over
            return answer_error(503, "the server stops", CLOSE)
        except Exception:  # a fault of ours
            traceback.print_exc()
            return answer_error(500, "internal error; the log of the server has the details")
        return content if isinstance(content, Response) else answer_json(content)

    answer.__annotations__ = {"request": fastapi.Request, "return": Response}
    return answer


async def not_found(request: Any, error: Any) -> Any:
    """Answer a path or a method that does not exist."""
    said = {404: f"there is no {request.url.path[:80]}; see /docs", 405: "use another method"}
    headers = getattr(error, "headers", None)
    return answer_error(error.status_code, said.get(error.status_code, "not found"), headers)


def make_app(service: Service) -> Any:
    """Return the application of a service, with an OpenAPI description of its model."""

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
    paths, settings = Paths(service), service.settings
    posts: dict[Handler, dict[str, Any]] = {
        paths.predict: described(service, PredictBody, settings.max_rows),
        paths.explain: described(service, ExplainBody, settings.max_explained),
        paths.remember: described(service, RememberBody, settings.max_rows, 401, 403),
    }
    gets = (paths.model, paths.hierarchy, paths.health, paths.ready, paths.metrics)
    for handler in (*posts, *gets):
        name = handler.__name__
        app.add_api_route(
            f"/{name}",
            answered(handler),
            summary=getdoc(handler),
            operation_id=name,
            methods=["POST" if handler in posts else "GET"],
            **posts.get(handler, {}),
        )
    app.add_api_route("/docs", answered(paths.docs), include_in_schema=False)
    app.add_api_route("/", answered(paths.welcome), include_in_schema=False)
    hosts = (settings.host, *settings.allow_host)
    app.add_middleware(Door, hosts=hosts, seconds=settings.body_timeout)
    app.add_middleware(Measured, service=service, paths={route.path for route in app.routes})
    app.add_exception_handler(404, not_found)
    app.add_exception_handler(405, not_found)
    return app


class Paths:
    """What the paths of a service answer; their docstrings are what OpenAPI says of them.

    Args:
        service: the model and its queues.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.buffered = 0  # bytes of bodies that are being read
        # One thread, so that many large bodies do not become many more objects at a time.
        self.readers = ThreadPoolExecutor(1, "hierlearn-bodies")

    async def _read(
        self, request: Any, kind: type[Body], most: int, read: Callable[[Body, Columns], Any]
    ) -> tuple[Any, int]:
        """Return what is read from the body of a request, and how many rows it has.

        Args:
            request: with a JSON object; a large one is read in a thread.
            kind: what the object must be.
            most: rows.
            read: called with the body and the columns of its rows.
        """

        def run() -> tuple[Any, int]:
            parsed = parse_body(b"".join(parts), kind, most)
            columns = self.service.model.inputs.columns(parsed.rows)
            return read(parsed, columns), len(parsed.rows)

        seconds = self.service.settings.body_timeout
        parts: list[bytes] = []
        try:
            try:
                await asyncio.wait_for(self._receive(request, parts), seconds)
            except asyncio.TimeoutError:
                raise Refusal(408, f"the body did not arrive within {seconds:g} s", CLOSE) from None
            if sum(map(len, parts)) <= LARGE:
                return run()
            return await asyncio.get_running_loop().run_in_executor(self.readers, run)
        finally:
            self.buffered -= sum(map(len, parts))

    async def _receive(self, request: Any, parts: list[bytes]) -> None:
        """Receive the body of a request; raise on one that is too large."""
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

    async def _ask(
        self, queue: Batcher[Question], request: Any, kind: type[Body], most: int, batch: int
    ) -> bytes:
        """Return the answers to a request, which the queue computes in parts.

        Args:
            queue: computes them.
            request: the request.
            kind: of its body.
            most: rows.
            batch: rows of a part.
        """
        queue.check_room()  # before anything is read
        model = self.service.model

        def read(body: Any, columns: Columns) -> list[Question]:
            options, count = body.options(), getattr(body, "count", None) or 3
            model.formatter(options)  # raises on what the model cannot do
            return [Question(model, one, count) for one in pieces(columns, options, batch)]

        parts, rows = await self._read(request, kind, most, read)
        queue.check_room(rows)
        futures = [queue.submit(one, len(one.task)) for one in parts]
        try:
            answers = [await one for one in futures]
        finally:
            for one in futures:
                one.cancel()  # where another part has failed
        return b'{"answers":[' + b",".join(answers) + b"]}"

    async def predict(self, request: Any) -> Any:
        """Predict: one answer per row, as hierlearn predict gives it."""
        settings, queue = self.service.settings, self.service.predicting
        batch = settings.limits.max_batch
        return await self._ask(queue, request, PredictBody, settings.max_rows, batch)

    async def explain(self, request: Any) -> Any:
        """Explain: the answers with what they rest on, as hierlearn explain shows it."""
        most, queue = self.service.settings.max_explained, self.service.explaining
        return await self._ask(queue, request, ExplainBody, most, EXPLAINED_TOGETHER)

    async def remember(self, request: Any) -> Any:
        """Remember: labeled rows, and new classes, without training. Needs a bearer token."""
        wanted = self.service.settings.token
        if wanted is None:
            raise Refusal(
                403, "the server was started without a token, so nothing may be remembered"
            )
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(token.strip().encode(), wanted.encode())
        if not same or kind.lower() != "bearer":
            raise Refusal(
                401,
                "remember needs the token of the server: Authorization: Bearer TOKEN",
                {"www-authenticate": "Bearer"},
            )

        def read(body: RememberBody, columns: Columns) -> Addition:
            for name in ("labels", "ids"):
                given = getattr(body, name)
                if given is not None and len(given) != len(body.rows):
                    raise HierlearnError(
                        f"rows has {len(body.rows):,} entries but {name} has {len(given):,}"
                    )
            labels = [[one] if isinstance(one, str) else one for one in body.labels]
            return Addition(Task(columns), labels, body.ids)

        most = self.service.settings.max_rows
        return await self.service.remembering.submit(
            *await self._read(request, RememberBody, most, read)
        )

    async def model(self, _: Any) -> Any:
        """What the model is and reads."""
        return self.service.model.describe()

    async def hierarchy(self, _: Any) -> Any:
        """The classes: path, title, level, parents."""
        return await asyncio.to_thread(self.service.model.hierarchy_json)

    async def health(self, _: Any) -> Any:
        """Whether the process is alive."""
        return {"status": "alive"}

    async def ready(self, _: Any) -> Any:
        """Whether requests are welcome; 503 before a stop."""
        if not self.service.ready:
            raise Refusal(503, "the server is about to stop")
        return {"status": "ready"}

    async def metrics(self, _: Any) -> Any:
        """Counts and seconds in the format of Prometheus."""
        content, kind = self.service.metrics()
        return Response(content, headers={"content-type": kind})

    async def docs(self, _: Any) -> Any:
        """Return the page that shows the OpenAPI description; it loads nothing from elsewhere."""
        return Response(read_page("docs.html"), media_type="text/html", headers=PAGE_HEADERS)

    async def welcome(self, request: Any) -> Any:
        """Return a page that says what the model is and how to ask it."""
        model = self.service.model
        hierarchy = model.pipeline.hierarchy
        shown = {
            "title": f"hierlearn: {model.pipeline.config.get('name') or 'model'}",
            "classes": plural(len(hierarchy), "class", "classes"),
            "levels": plural(hierarchy.depth, "level"),
            "inputs": model.inputs.described,
            "address": str(request.base_url),
            "example": to_json({"rows": [model.inputs.example()]}).decode().replace("'", "'\\''"),
        }
        escaped = {name: html.escape(text, quote=False) for name, text in shown.items()}
        page = Template(read_page("welcome.html")).substitute(escaped)
        return Response(page, media_type="text/html", headers=PAGE_HEADERS)


def read_page(name: str) -> str:
    return resources.files("hierlearn.service").joinpath(name).read_text("utf-8")


def pieces(columns: Columns, options: Options, most: int) -> Iterator[Task]:
    """Yield the rows of a request in parts of at most ``most`` rows."""
    whole = Task(columns, options)
    if len(whole) <= most:
        yield whole
        return
    for begin in range(0, len(whole), most):
        some = {name: cells[begin : begin + most] for name, cells in columns.items()}
        yield Task(some, options, begin)


# ---------------------------------------------------------------------- before and after a path


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
            self.service.requests.labels(path, code).inc()
            self.service.latencies.labels(path).observe(time.perf_counter() - begin)


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
        headers = scope["headers"]
        if any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
            for name, value in headers
        ):
            waits = any(name == b"expect" for name, _ in headers)
            rest = Rest(receive, send, self.seconds, waits=waits)
            receive, send = rest.receive, rest.send
        given = [value for name, value in headers if name == b"host"]
        named = HOST.fullmatch(given[0].strip()) if len(given) == 1 else None
        host = (named[1] or named[2]).decode("ascii").lower().rstrip(".") if named else ""
        if not host:
            said = "the request needs one Host header with a name or an address"
            await answer_error(400, said)(scope, receive, send)
        elif not self.answers(host, scope.get("server")):
            name = host[:80]
            said = (
                f"this server does not go by the name {name!r}; whoever runs it may start it with "
                f"--allow-host {name}"
            )
            await answer_error(421, said)(scope, receive, send)
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
