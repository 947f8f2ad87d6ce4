"""Records as JSON lines."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from hierlearn.errors import DataError, HierlearnError, place
from hierlearn.files.reading import read_bytes
from hierlearn.files.schema import Extra, Range, check

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


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
