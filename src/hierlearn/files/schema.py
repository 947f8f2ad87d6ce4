"""Schemas: what a JSON file must hold, written as types.

A dataclass is an object whose fields are its keys; a field with a default may be missing. ``Extra``
among the bases allows other keys, too. Beside them: str, int, float, bool, None, Any, Literal,
list[...], dict[str, ...], unions, and ``Annotated[int, Range(1, 8)]``.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from hierlearn.errors import DataError, HierlearnError, quoted, shown, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WORDS = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
LONGEST_KEY = 40  # characters of a key that a message shows


class Extra:
    """A base of dataclasses whose objects may have other keys, too."""


@dataclass(frozen=True)
class Range:
    """The least and the most that a number, or the length of a text or list, may be."""

    least: float = -math.inf
    most: float = math.inf


def check(
    path: Path | str, value: Any, schema: Any, kind: Callable[[str], HierlearnError] = DataError
) -> None:
    """Raise unless a value fits a schema, in one sentence that names the file and the key.

    Args:
        path: the file.
        value: what it holds.
        schema: a type.
        kind: the error to raise.
    """
    wrong = mismatch(value, schema, "")
    if wrong is not None:
        raise kind(f"{path}: {wrong}")


def mismatch(value: Any, schema: Any, key: str) -> str | None:
    """Return how a value differs from a schema; None where it fits.

    Args:
        value: the value.
        schema: a type.
        key: where it is in the file, with dots.
    """
    origin, parts = get_origin(schema), get_args(schema)
    if schema is Any:
        return None
    if origin is Annotated:
        return mismatch(value, parts[0], key) or out_of_range(value, parts[1], key)
    if origin in (Union, UnionType):
        found = [mismatch(value, one, key) for one in parts]
        if None in found:
            return None
        others = [one for one in parts if one is not NoneType]
        # Of several alternatives, the one of the same type says what is wrong inside.
        return (
            found[parts.index(others[0])]
            if len(others) == 1 and value
            else wanted(schema, value, key)
        )
    if is_dataclass(schema):
        return object_mismatch(value, schema, key)
    if origin is Literal:
        fits = type(value) in map(type, parts) and value in parts
    elif origin is list:
        if isinstance(value, list):
            return next(
                filter(
                    None, (mismatch(one, parts[0], f"{key}[{n}]") for n, one in enumerate(value))
                ),
                None,
            )
        fits = False
    elif origin is dict:
        if isinstance(value, dict):
            pairs = ((below(key, name), one) for name, one in value.items())
            return next(filter(None, (mismatch(one, parts[1], name) for name, one in pairs)), None)
        fits = False
    elif schema is float:
        fits = type(value) in (int, float)
    elif schema in (NoneType, None):
        fits = value is None
    else:
        fits = type(value) is schema
    return None if fits else wanted(schema, value, key)


def object_mismatch(value: Any, schema: Any, key: str) -> str | None:
    """Return how a value differs from a dataclass; None where it fits."""
    if not isinstance(value, dict):
        return wanted(schema, value, key)
    kinds = kinds_of(schema)
    for name, (kind, needed) in kinds.items():
        if name in value:
            wrong = mismatch(value[name], kind, below(key, name))
            if wrong is not None:
                return wrong
        elif needed:
            return f"{below(key, name)} is missing"
    extra = next((name for name in value if name not in kinds), None)
    if extra is None or issubclass(schema, Extra):
        return None
    return unknown_name("key", below(key, extra), kinds)


@cache
def kinds_of(schema: Any) -> dict[str, tuple[Any, bool]]:
    """Return the type of each key of a dataclass, and whether it must be there."""
    hints = get_type_hints(schema, include_extras=True)
    return {
        one.name: (hints[one.name], one.default is MISSING and one.default_factory is MISSING)
        for one in fields(schema)
    }


def out_of_range(value: Any, limits: Range, key: str) -> str | None:
    """Return how a value leaves a range; None where it is inside."""
    if value is None:
        return None
    size = value if isinstance(value, (int, float)) else len(value)
    if limits.least <= size <= limits.most:
        return None
    what = "" if size is value else "the length of "
    bounds = f"from {limits.least:g} to {limits.most:g}"
    return f"{what}{key or 'the content'} must be {bounds}, not {shown(size)}"


def wanted(schema: Any, value: Any, key: str) -> str:
    """Word what a key must hold."""
    return f"{key or 'the content'} must be {word(schema)}, not {shown(value)}"


def word(schema: Any) -> str:
    """Return a type in words."""
    origin, parts = get_origin(schema), get_args(schema)
    if origin is Annotated:
        return word(parts[0])
    if origin in (Union, UnionType):
        return " or ".join(word(one) for one in parts)
    if origin is Literal:
        return f"one of {quoted(parts)}"
    if origin is list:
        return "a list"
    if schema in (NoneType, None):
        return "null"
    return WORDS.get(schema, "an object")


def below(key: str, name: Any) -> str:
    """Return the place of a key inside an object."""
    text = str(name)
    text = text if len(text) <= LONGEST_KEY else f"{text[:LONGEST_KEY]}..."
    return f"{key}.{text}" if key else text
