"""Records as JSON lines."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from hierlearn.errors import DataError, HierlearnError, place, shown
from hierlearn.files.reading import read_bytes, read_text
from hierlearn.files.schema import Extra, Range, check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


LARGEST = 1 << 20  # bytes
DEEPEST = 20  # levels of lists and mappings


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

    text = read_text(path, LARGEST)
    try:
        check_events(path, text, kind)
        return plain_loader()(text).get_single_data()
    except yaml.YAMLError as error:
        raise kind(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    except HierlearnError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise kind(f"{path} is not valid YAML: {shown(str(error), 160)}") from None


def check_events(path: Path | str, text: str, kind: Callable[[str], HierlearnError]) -> None:
    """Raise on aliases, tags and deep nesting, before any value is made."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
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
