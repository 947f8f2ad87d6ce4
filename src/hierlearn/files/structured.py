"""Structured files: JSON lines, YAML and what JSON must hold, written as types."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
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

from hierlearn.errors import DataError, HierlearnError, place, quoted, shown, unknown_name
from hierlearn.files.reading import read_bytes, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path


LARGEST = 1 << 20  # bytes
DEEPEST = 20  # levels of lists and mappings


# ---------------------------------------------------------------------- schemas

WORDS: dict[Any, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}
WORDS |= {None: "null", NoneType: "null", list: "a list", tuple: "a list"}
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

    A dataclass is an object whose fields are its keys; a field with a default may be missing.
    ``Extra`` among the bases allows other keys, too. Beside them: str, int, float, bool, None, Any,
    Literal, list[...] and tuple[..., ...], dict[str, ...], unions, ``Annotated[int, Range(1, 8)]``.

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
    inside: Iterable[str | None]
    if schema is Any:
        return None
    if origin is Annotated:
        wrong = mismatch(value, parts[0], key)
        size = value if isinstance(value, (int, float)) else len(value or ())
        if wrong or value is None or parts[1].least <= size <= parts[1].most:
            return wrong
        what = "" if size is value else "the length of "
        bounds = f"from {parts[1].least:g} to {parts[1].most:g}"
        return f"{what}{key or 'the content'} must be {bounds}, not {shown(size)}"
    if origin in (Union, UnionType):
        wrongs = [mismatch(value, one, key) for one in parts]
        if None in wrongs:
            return None
        others = [one for one in parts if one is not NoneType]
        if len(others) == 1 and value:  # what is wrong inside
            return wrongs[parts.index(others[0])]
    elif is_dataclass(schema) and isinstance(value, dict):
        return object_mismatch(value, schema, key)
    elif origin in (list, tuple) and isinstance(value, list):
        inside = (mismatch(one, parts[0], f"{key}[{n}]") for n, one in enumerate(value))
        return next(filter(None, inside), None)
    elif origin is dict and isinstance(value, dict):
        inside = (mismatch(one, parts[1], below(key, name)) for name, one in value.items())
        return next(filter(None, inside), None)
    elif origin is Literal:
        if type(value) in map(type, parts) and value in parts:
            return None
    elif type(value) is (schema or NoneType) or (schema is float and type(value) is int):
        return None
    return f"{key or 'the content'} must be {word(schema)}, not {shown(value)}"


def object_mismatch(value: Mapping[str, Any], schema: Any, key: str) -> str | None:
    """Return how an object differs from a dataclass; None where it fits."""
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


def word(schema: Any) -> str:
    origin, parts = get_origin(schema), get_args(schema)
    if origin is Annotated:
        return word(parts[0])
    if origin in (Union, UnionType):
        return " or ".join(word(one) for one in parts)
    if origin is Literal:
        return f"one of {quoted(parts)}"
    return WORDS.get(origin or schema, "an object")


def below(key: str, name: object) -> str:
    """Return the place of a key inside an object."""
    text = str(name)
    text = text if len(text) <= LONGEST_KEY else f"{text[:LONGEST_KEY]}..."
    return f"{key}.{text}" if key else text


# ---------------------------------------------------------------------- JSON lines


@dataclass
class EpochJson(Extra):
    """An epoch of a log."""

    epoch: Annotated[int, Range(0)]
    valid: dict[str, list[float | None]] = field(default_factory=dict)
    selected_by_level: list[float] = field(default_factory=list)


def json_line(record: Mapping[str, Any]) -> str:
    """Return a record as one line of JSON, with null for an undefined metric."""
    valid = {
        name: [None if value != value else value for value in values]
        for name, values in record.get("valid", {}).items()
    }
    return json.dumps({**record, **({"valid": valid} if valid else {})}, allow_nan=False) + "\n"


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the epochs of a log; an incomplete last line is left out."""
    return read_records(path, EpochJson) if path.exists() else []


def read_records(
    path: Path, schema: Any, kind: type[HierlearnError] = DataError
) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines; an incomplete last line is left out.

    Args:
        path: the file.
        schema: of a record.
        kind: the error to raise where a line is damaged.
    """
    records: list[dict[str, Any]] = []
    lines = read_bytes(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # no UTF-8, no JSON, a huge integer, deep nesting
            if number == len(lines):
                break  # cut off while it was written
            raise kind(f"{place(path, number)}: not JSON; remove the line") from None
        check(place(path, number), record, schema, kind)
        records.append(record)
    return records


# ---------------------------------------- YAML files of options: plain values only, in bounds
#
# Aliases, tags and dates are refused, not interpreted: an alias can stand for a billion values, a
# tag for an object. Each key occurs once.


def read_yaml(path: Path | str, kind: Callable[[str], HierlearnError] = DataError) -> Any:
    """Return the content of a YAML file.

    Args:
        path: the file.
        kind: the error to raise where it is not plain YAML.
    """
    import yaml

    text, depth = read_text(path, LARGEST), 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):  # before any value is made
            where = place(path, event.start_mark.line + 1)
            if isinstance(event, yaml.AliasEvent):
                raise kind(f"{where}: aliases (&name, *name) are not read; write the value itself")
            tag = getattr(event, "tag", None)
            if tag is not None:
                raise kind(f"{where}: tags such as {shown(tag)} are not read; write a plain value")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > DEEPEST:
                    raise kind(f"{where}: lists and mappings are nested more than {DEEPEST} deep")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
        return plain_loader()(text).get_single_data()
    except yaml.YAMLError as error:
        raise kind(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    except HierlearnError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise kind(f"{path} is not valid YAML: {shown(str(error), 160)}") from None


def plain_loader() -> Any:
    """Return a loader without dates, for which a key occurs once."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        """Reads strings, numbers, booleans, nulls, lists and mappings."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """Return a mapping; raise where a key occurs twice."""
            seen = set()
            for name, _ in node.value:
                key = name.value if isinstance(name, yaml.ScalarNode) else None
                if key is not None and key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {shown(key)} occurs twice", name.start_mark
                    )
                seen.add(key)
            return super().construct_mapping(node, deep)

    date = "tag:yaml.org,2002:timestamp"
    PlainLoader.yaml_implicit_resolvers = {
        first: [one for one in resolvers if one[0] != date]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return PlainLoader
