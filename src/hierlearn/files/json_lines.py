"""Records as JSON lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def json_line(record: Mapping[str, Any]) -> str:
    """Return a record as one line of JSON, with null for an undefined metric."""
    valid = {
        name: [None if value != value else value for value in values]
        for name, values in record.get("valid", {}).items()
    }
    return json.dumps({**record, **({"valid": valid} if valid else {})}, allow_nan=False) + "\n"


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the records of a log; an incomplete last line is left out."""
    records: list[dict[str, Any]] = []
    if not path.is_file():
        return records
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records
