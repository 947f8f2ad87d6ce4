"""Requests: JSON bodies, checked; a refusal has a status code and one sentence."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from hierlearn.errors import HierlearnError, plural, shorten, shown, unknown_name
from hierlearn.service.model import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREDICT = ("rows", "top", "by_level", "decoder", "threshold", "risk")
EXPLAIN = ("rows", "count", "decoder", "threshold", "risk")
REMEMBER = ("rows", "labels", "ids")
MOST_EVIDENCE = 100  # rows, words or cells behind an answer
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


def read_options(body: Mapping[str, Any]) -> Options:
    """Return what a request asks for."""
    decoder, threshold = body.get("decoder"), body.get("threshold")
    if decoder is not None and not isinstance(decoder, str):
        raise HierlearnError(f"decoder must be a name, not {shown(decoder)}")
    if threshold is not None and (
        isinstance(threshold, bool)
        or not isinstance(threshold, (int, float))
        or not abs(threshold) < 1e9
    ):
        raise HierlearnError(f"threshold must be a number, not {shown(threshold)}")
    risk = body.get("risk")
    if risk is not None and (
        isinstance(risk, bool) or not isinstance(risk, (int, float)) or not 0 < risk < 1
    ):
        raise HierlearnError(f"risk must be a number between 0 and 1, not {shown(risk)}")
    by_level = body.get("by_level", False)
    if not isinstance(by_level, bool):
        raise HierlearnError(f"by_level must be true or false, not {shown(by_level)}")
    return Options(
        top=read_count(body, "top", 0),
        by_level=by_level,
        decoder=decoder,
        threshold=None if threshold is None else float(threshold),
        risk=None if risk is None else float(risk),
    )


def read_count(body: Mapping[str, Any], name: str, default: int, most: int | None = None) -> int:
    """Return a field that is an integer of at least 1, or its default."""
    found = body.get(name)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise HierlearnError(f"{name} must be an integer of at least 1, not {shown(found)}")
    if most is not None and found > most:
        raise HierlearnError(f"{name} must be at most {most:,}, not {shown(found)}")
    return found


def read_labels(body: Mapping[str, Any], rows: int) -> list[list[str]]:
    """Return the labels of rows to remember: a path, or a list of paths, for each."""
    given = body.get("labels")
    if not isinstance(given, list):
        raise HierlearnError(f"labels must be a list, one entry per row, not {shown(given)}")
    if len(given) != rows:
        raise HierlearnError(f"rows has {rows:,} entries but labels has {len(given):,}")
    found = []
    for number, one in enumerate(given):
        labels = [one] if isinstance(one, str) else one
        if not isinstance(labels, list) or not all(isinstance(x, str) and x for x in labels):
            raise HierlearnError(
                f"labels, row {number} (counted from 0): {shown(one)} is neither a path nor a list "
                f"of paths"
            )
        found.append(labels)
    return found


def read_ids(body: Mapping[str, Any], rows: int) -> list[str] | None:
    """Return the ids of rows to remember; None where they are to be made."""
    given = body.get("ids")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
        raise HierlearnError(f"ids must be a list of texts, one per row, not {shown(given)}")
    if len(given) != rows:
        raise HierlearnError(f"rows has {rows:,} entries but ids has {len(given):,}")
    return given
