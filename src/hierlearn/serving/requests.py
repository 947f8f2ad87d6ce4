"""Requests: JSON bodies, checked; a refusal has a status code and one sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from hierlearn.errors import HierlearnError, shorten, shown, unknown_name
from hierlearn.serving.model import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREDICT = ("rows", "top", "by_level", "decoder", "threshold", "risk")
EXPLAIN = ("rows", "count", "decoder", "threshold", "risk")
REMEMBER = ("rows", "labels", "ids")
MOST_EVIDENCE = 100  # rows, words or cells behind an answer


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


def parse_body(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request."""
    try:
        text = body.decode("utf-8")
        found = json.loads(text, parse_constant=refuse_constant)
        if "\\u" in text:  # an escape may hold half of a character
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not UTF-8: byte {error.start} is invalid") from None
    except UnicodeEncodeError:
        raise Refusal(400, "the body has half of a surrogate pair, which is no text") from None
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply; rows are lists of values") from None
    except ValueError as error:
        raise Refusal(400, shorten(f"the body is not JSON: {error}")) from None
    if not isinstance(found, dict):
        what = shown(found)
        raise Refusal(422, f'the body must be an object such as {{"rows": [...]}}, not {what}')
    return found


def refuse_constant(name: str) -> NoReturn:
    """Raise on NaN and infinity, which are not JSON."""
    raise ValueError(f"{name} is no value of JSON; give null where a number is missing")


def check_fields(body: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise on a field that the request does not have, and where there are no rows."""
    for name in body:
        if name not in known:
            raise HierlearnError(shorten(unknown_name("field", name, known)))
    if "rows" not in body:
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
