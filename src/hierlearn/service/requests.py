"""Requests: JSON bodies, checked; a refusal has a status code and one sentence."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from hierlearn.datasets.images.images import Images
from hierlearn.datasets.tables.dates import ISO, split_form
from hierlearn.datasets.tables.kinds import (
    LARGEST,
    as_string,
    base_kind,
    date_format,
    is_mark,
    parse_any,
    parse_values,
)
from hierlearn.datasets.tables.stream import Chunk
from hierlearn.datasets.tables.table import TableChunk
from hierlearn.errors import DataError, HierlearnError, plural, quoted, shorten, shown, unknown_name
from hierlearn.pipeline.answers import known_columns
from hierlearn.pipeline.missing import MissingCells
from hierlearn.pipeline.predict import HeldImage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.pipeline import Pipeline

    Columns = Mapping[str, Sequence[Any]]  # cells by name, as many in each


EXAMPLES = {"number": 0.5, "category": "a", "text": "some words", "boolean": True, "image": ""}
LARGE = 1 << 16  # bytes of a body that is read entry by entry
PIECE = 1 << 16  # characters of a list of numbers that are read at once
OTHERS = 1000  # lists and objects of a body beside four per row
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # an escape that is half of a character
STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
BLANKS = re.compile(r"[ \t\n\r]*")


@dataclass
class Refusal(Exception):  # noqa: N818  (not an error of the program)
    """A request that is answered with an error.

    Attributes:
        code: the HTTP status.
        message: one sentence.
        headers: of the response.
    """

    code: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


def parse_body(body: bytes, known: Sequence[str], most: int) -> dict[str, Any]:
    """Return the JSON object of a request.

    Args:
        body: its bytes.
        known: the fields that it may have.
        most: the most entries of a list; more are refused before they are read.
    """
    try:
        text = body.decode("utf-8")
        if len(text) > LARGE:
            return LargeBody(text, most).fields(known)
        found = json.loads(text, parse_constant=refuse_constant)
        if SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except HierlearnError:
        raise
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8: byte {error.start} is invalid") from None
    except UnicodeEncodeError:
        raise Refusal(400, "the body has half of a surrogate pair, which is no text") from None
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply; rows are lists of values") from None
    except ValueError as error:
        raise Refusal(400, shorten(f"the body is not JSON: {error}")) from None
    if not isinstance(found, dict):
        raise no_object(shown(found))
    check_fields(found, known)
    return found


def no_object(what: str) -> Refusal:
    """Return the refusal of a body that is no object."""
    return Refusal(422, f'the body must be an object such as {{"rows": [...]}}, not {what}')


class LargeBody:
    """A JSON object that is read entry by entry.

    The parser holds the lock of the interpreter while it reads a value; between two entries the
    server can answer others. What has more lists or objects than rows could need is not read.

    Args:
        text: the body.
        most: the most entries of a list.
    """

    def __init__(self, text: str, most: int) -> None:
        self.text, self.most = text, most
        decoder = json.JSONDecoder(parse_constant=refuse_constant)
        self._scan: Any = decoder.scan_once  # type: ignore[attr-defined]
        self._check = SURROGATE.search(text) is not None

    def fields(self, known: Sequence[str]) -> dict[str, Any]:
        """Return the object; raise as ``json.loads`` does."""
        place = self._skip(0)
        if not self.text.startswith("{", place):
            first = self.text[place : place + 20]
            raise no_object(f"{first!r}...")
        self._count()
        found: dict[str, Any] = {}
        place = self._skip(place + 1)
        while not self.text.startswith("}", place):
            if found:
                place = self._skip(self._past(",", place))
            if not self.text.startswith('"', place):
                raise self._expected("a field in double quotes", place)
            name, place = self._value(place)
            check_fields({name: None}, known, complete=False)
            place = self._skip(self._past(":", self._skip(place)))
            is_list = self.text.startswith("[", place)
            found[name], place = self._entries(name, place) if is_list else self._value(place)
            place = self._skip(place)
        end = self._skip(place + 1)
        if end != len(self.text):
            raise json.JSONDecodeError("Extra data", self.text, end)
        check_fields(found, known)
        return found

    def _count(self) -> None:
        """Raise on more lists and objects than a request can need."""
        most = 4 * self.most + OTHERS
        text = self.text
        if text.count("[") + text.count("{") > most:
            text = STRINGS.sub("", text)
            if text.count("[") + text.count("{") > most:
                raise self._too_many("the body has more lists and objects than rows may have")

    def _entries(self, name: str, place: int) -> tuple[list[Any], int]:
        """Return a list, and the place behind it."""
        found: list[Any] = []
        place = self._skip(place + 1)
        while not self.text.startswith("]", place):
            if found:
                place = self._skip(self._past(",", place))
            if len(found) >= self.most:
                raise self._too_many(
                    f"{name} has more than {plural(self.most, 'entry', 'entries')}"
                )
            value, place = self._numbers(place) or self._value(place)
            found.append(value)
            place = self._skip(place)
        return found, place + 1

    def _numbers(self, place: int) -> tuple[list[Any], int] | None:
        """Return a long list of numbers, read in pieces, and the place behind it; else None."""
        if not self.text.startswith("[", place):
            return None
        end = self.text.find("]", place)
        if end - place < PIECE or any(self.text.find(one, place + 1, end) > 0 for one in '[{"'):
            return None
        found: list[Any] = []
        begin = place + 1
        try:
            while begin <= end:
                cut = self.text.rfind(",", begin, begin + PIECE) if end - begin > PIECE else end
                own = (
                    json.loads(f"[{self.text[begin:cut]}]", parse_constant=refuse_constant)
                    if cut > begin
                    else []
                )
                if not own:  # two commas, or no comma at all
                    return None
                found += own
                begin = cut + 1
        except json.JSONDecodeError:
            return None  # whoever reads it whole says where the fault is
        return found, end + 1

    def _value(self, place: int) -> tuple[Any, int]:
        """Return any value, and the place behind it."""
        try:
            value, end = self._scan(self.text, place)
        except StopIteration as error:
            raise json.JSONDecodeError("Expecting value", self.text, error.value) from None
        if self._check:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value, end

    def _skip(self, place: int) -> int:
        match = BLANKS.match(self.text, place)
        return place if match is None else match.end()

    def _past(self, mark: str, place: int) -> int:
        if not self.text.startswith(mark, place):
            raise self._expected(repr(mark), place)
        return place + 1

    def _expected(self, what: str, place: int) -> json.JSONDecodeError:
        return json.JSONDecodeError(f"Expecting {what}", self.text, place)

    def _too_many(self, what: str) -> Refusal:
        return Refusal(413, f"{what}; send at most {plural(self.most, 'row')} at once")


def refuse_constant(name: str) -> NoReturn:
    """Raise on NaN and infinity, which are not JSON."""
    raise ValueError(f"{name} is no value of JSON; give null where a number is missing")


def check_fields(body: Mapping[str, Any], known: Sequence[str], *, complete: bool = True) -> None:
    """Raise on a field that the request does not have, and where a complete one has no rows."""
    for name in body:
        if name not in known:
            raise HierlearnError(shorten(unknown_name("field", name, known)))
    if complete and "rows" not in body:
        raise HierlearnError('rows are missing; give {"rows": [...]}')


VECTOR, TEXT, IMAGE = "vector", "text", "image"  # columns of a model that has no name for its own
NUMBERS = frozenset({int, float, type(None)})


def row_place(row: int, column: str | int | None = None) -> str:
    """Word the place of a row, or of a cell."""
    return f"row {row} (counted from 0)" + ("" if column is None else f", column {column!r}")


class GivenRows(TableChunk):
    """The rows of a request.

    Args:
        columns: the cells of each column.
        first: the number of the first row in its request.
    """

    remedy: ClassVar[str] = "give null if it is missing"

    def __init__(self, columns: Columns, first: int = 0) -> None:
        count = len(next(iter(columns.values())))
        super().__init__(Path("rows"), columns, range(first, first + count))

    def where(self, row: int, name: str) -> str:
        """Word the place of a cell."""
        return row_place(self.lines[row], name)

    def number_column(self, name: str) -> NDArray[np.float32]:
        """Return (n,) float32, NaN where a value is missing."""
        cells = self.cells(name)
        values = as_floats(cells)
        with np.errstate(over="ignore"):  # values beyond float32 are refused below
            narrow = values.astype(np.float32)
        for row in np.flatnonzero(~np.isfinite(narrow)).tolist():
            cell = cells[row]
            if is_mark(cell):
                continue
            if np.isfinite(values[row]):
                raise DataError(
                    f"{self.where(row, name)}: {shown(cell)} does not fit into float32, whose "
                    f"largest value is {LARGEST:.1e}; scale the column"
                )
            raise DataError(
                f"{self.where(row, name)}: {shown(cell)} is not a finite number; {self.remedy}"
            )
        return narrow

    def column(self, name: str, kind: str) -> NDArray[Any]:
        """Return (n,) values of one column, as a ``Table`` holds a column of that kind."""
        if kind == "number":
            return self.number_column(name)
        cells = [self.as_cell(row, name, cell) for row, cell in enumerate(self.cells(name))]
        return parse_values(cells, kind, lambda row: self.where(row, name), self.remedy)

    def as_cell(self, row: int, name: str, cell: Any) -> str | date | None:
        """Return a value as a file would have it; raise on a list or an object."""
        if cell is None or isinstance(cell, str):
            return cell
        if isinstance(cell, bool):
            return "true" if cell else "false"
        if isinstance(cell, (list, tuple, dict)):
            raise DataError(
                f"{self.where(row, name)}: a {type(cell).__name__} is no value of a column; give a "
                f"string, a number or null"
            )
        return cell if isinstance(cell, date) else as_string(cell)

    def texts(self, name: str) -> list[str]:
        """Return n texts, empty where one is missing."""
        for row, cell in enumerate(self.cells(name)):
            if cell is not None and not isinstance(cell, str):
                raise DataError(f"{self.where(row, name)}: {shown(cell)} is not text")
        return [cell or "" for cell in self.cells(name)]


def as_floats(cells: Sequence[Any]) -> NDArray[np.float64]:
    """Return numbers, or texts of numbers, as float64; NaN where a cell is neither."""
    if {*map(type, cells)} <= NUMBERS:
        try:
            return np.array(cells, dtype=np.float64)  # None becomes NaN
        except OverflowError:  # an integer beyond float64
            pass
    plain = [None if isinstance(cell, (bool, list, dict)) else cell for cell in cells]
    return parse_any(plain, "")


@dataclass(frozen=True)
class Inputs:
    """What a model reads of a row.

    Attributes:
        pipeline: the model.
        kind: "table", "texts", "numbers", "vectors" or "images".
        kinds: the columns with their kinds.
        named: whether the model knows its columns by name; otherwise rows are values alone.
        width: the numbers of a vector; None where that is not known.
    """

    pipeline: Pipeline
    kind: str
    kinds: dict[str, str]
    named: bool = True
    width: int | None = None

    @classmethod
    def of(cls, pipeline: Pipeline) -> Inputs:
        """Return what a model reads, as it was trained."""
        ((kind, name),) = known_columns(pipeline).items()
        named = name is not None
        if kind == "kinds":
            return cls(pipeline, "table", dict(name))
        if kind == "text":
            return cls(pipeline, "texts", {name or TEXT: "text"}, named=named)
        if kind == "image":
            return cls(pipeline, "images", {name or IMAGE: "image"}, named=named)
        if kind == "features" and name:
            return cls(pipeline, "numbers", dict.fromkeys(name, "number"), width=len(name))
        step: Any = pipeline.preprocessor
        width = None if step is None else step.input_columns
        if step is None and pipeline.network_spec is not None:
            width = pipeline.network_spec.inputs.width
        return cls(pipeline, "vectors", {name or VECTOR: "vector"}, named=named, width=width)

    # ------------------------------------------------------------------ rows -> columns

    def columns(self, rows: Any) -> dict[str, list[Any]]:
        """Return the rows of a request as columns; cells are checked later.

        Args:
            rows: a list of objects, of texts or of lists of numbers, as JSON gives them.
        """
        if not isinstance(rows, list):
            raise DataError(f"rows must be a list of {self.described}, not {shown(rows)}")
        if not rows:
            raise DataError(f"rows is empty; give a list of {self.described}")
        if not isinstance(rows[0], dict):
            return self._plain(rows)
        if not self.named:
            raise DataError(
                f"{row_place(0)} is an object, but the model does not know its columns by name; "
                f"give {self.described}"
            )
        try:
            return {name: [row[name] for row in rows] for name in self.kinds}
        except (KeyError, TypeError, IndexError):
            raise self._misfit(rows) from None

    def _plain(self, rows: list[Any]) -> dict[str, list[Any]]:
        """Return rows that are values alone as columns."""
        if self.kind in ("texts", "images", "vectors"):
            wanted: type = list if self.kind == "vectors" else str
            for number, row in enumerate(rows):
                if not isinstance(row, wanted):
                    raise self._misfit(rows, number)
            return {next(iter(self.kinds)): rows}
        if self.kind == "table":
            raise self._misfit(rows, 0)
        for number, row in enumerate(rows):
            if not isinstance(row, list):
                raise self._misfit(rows, number)
            if len(row) != self.width:
                raise DataError(
                    f"{row_place(number)} has {plural(len(row), 'number')}, but the model reads "
                    f"{self.width:,}"
                )
        return {
            name: list(cells)
            for name, cells in zip(self.kinds, zip(*rows, strict=True), strict=True)
        }

    def _misfit(self, rows: list[Any], number: int | None = None) -> DataError:
        """Return the error of the first row that is of another form."""
        for row, one in enumerate(rows) if number is None else ():
            if not isinstance(one, dict):
                number = row
                break
            lacking = [name for name in self.kinds if name not in one]
            if lacking:
                return DataError(
                    f"{row_place(row)} lacks {plural(len(lacking), 'column')}: "
                    f"{quoted(lacking, most=10)}; it has {quoted(list(one), most=10)}; give null "
                    f"where a value is missing"
                )
        number = number or 0
        return DataError(
            f"{row_place(number)} is {shown(rows[number])}; give {self.described}, all of one form"
        )

    @property
    def described(self) -> str:
        """What rows may be, for errors and for the page."""
        names = quoted(self.kinds, most=10)
        alone = {
            "texts": "texts",
            "images": "images in base64",
            "numbers": f"lists of {self.width} numbers",
            "vectors": f"lists of {self.width or 'as many'} numbers",
        }.get(self.kind)
        objects = (
            f"objects with {plural(len(self.kinds), 'column')} {names}" if self.named else None
        )
        return " or ".join(one for one in (objects, alone) if one)

    @staticmethod
    def date_form(kind: str) -> str:
        """Return how dates of a kind are written, for people."""
        return "YYYY-MM-DD" if date_format(kind) == ISO else date_format(kind)

    def example(self) -> Any:
        """Return an invented row as a request has it."""

        def cell(kind: str) -> Any:
            if base_kind(kind) == "date":
                form, _ = split_form(date_format(kind))
                return datetime(2024, 5, 17).strftime("%Y-%m-%d" if form == ISO else form)
            return [0.5] * (self.width or 3) if kind == "vector" else EXAMPLES[kind]

        row = {name: cell(kind) for name, kind in self.kinds.items()}
        if self.named:
            return row
        return next(iter(row.values()))

    # ------------------------------------------------------------------ columns -> inputs

    def chunk(self, columns: Columns, first: int = 0, *, learns: bool = False) -> Chunk:
        """Return columns as the inputs of the model.

        Args:
            columns: those of ``kinds``; others are ignored.
            first: the number of the first row in its request.
            learns: whether the model learns from them, and so does not impute what they lack.

        Raises:
            DataError: naming the row and the column of a value that the model cannot read.
        """
        lacking = [name for name in self.kinds if name not in columns]
        if lacking:
            raise DataError(
                f"the rows lack {plural(len(lacking), 'column')}: {quoted(lacking, most=10)}; they "
                f"have {quoted(columns, most=10)}"
            )
        rows = GivenRows({name: columns[name] for name in self.kinds}, first)
        chunk = Chunk(self._inputs(rows), rows.lines)
        cells = MissingCells(self.pipeline, learns=learns)
        cells.add(chunk.inputs, lambda row, name: row_place(rows.lines[row], name))
        cells.warn(counted=False)
        return chunk

    def _inputs(self, rows: GivenRows) -> Any:
        """Return the inputs of rows."""
        name = next(iter(self.kinds))
        if self.kind == "table":
            return rows.table(self.kinds)
        if self.kind == "texts":
            return rows.texts(name)
        if self.kind == "images":
            return Images([decoded(rows, row, name) for row in range(len(rows))])
        if self.kind == "vectors":
            return self._vectors(rows, name)
        return rows.numbers(list(self.kinds))

    def _vectors(self, rows: GivenRows, name: str) -> NDArray[np.float32]:
        """Return (n, D) of lists of numbers."""
        cells = rows.cells(name)
        width = self.width or (len(cells[0]) if isinstance(cells[0], (list, tuple)) else 0)
        for row, cell in enumerate(cells):
            place = rows.where(row, name) if self.named else row_place(rows.lines[row])
            if not isinstance(cell, (list, tuple, np.ndarray)) or len(cell) != width:
                raise DataError(f"{place}: {shown(cell)} is no list of {width:,} numbers")
        with np.errstate(over="ignore"):  # values beyond float32 are refused below
            found = np.stack([as_floats(list(cell)) for cell in cells]).astype(np.float32)
        wrong = np.argwhere(~np.isfinite(found))
        if len(wrong):
            row, number = wrong[0].tolist()
            place = rows.where(row, name) if self.named else row_place(rows.lines[row])
            raise DataError(
                f"{place}: entry {number} of the list, {shown(cells[row][number])}, is not a "
                f"finite number of float32"
            )
        return found


def decoded(rows: GivenRows, row: int, name: str) -> HeldImage:
    """Return an image of a request from its base64."""
    cell = rows.cells(name)[row]
    if isinstance(cell, bytes):
        return HeldImage(rows.where(row, name), cell)
    try:
        return HeldImage(rows.where(row, name), base64.b64decode(cell, validate=True))
    except (TypeError, ValueError, binascii.Error):
        raise DataError(
            f"{rows.where(row, name)}: {shown(cell)} is no base64 of an image file"
        ) from None
