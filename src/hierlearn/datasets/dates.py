"""Dates in cells: parsed by one format per column, which is found on the training rows."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.hierarchy.names import is_missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

ISO = "iso"  # 2024-01-31, 2024-01-31T12:30:00, 2024-01-31 12:30+02:00
DAYS = (
    "%Y/%m/%d",
    "%Y-%m",
    "%m/%d/%Y",  # where both fit every date, the month comes first
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%d %b %Y",
    "%d %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
)
FORMATS = (ISO, *(day + time for day in DAYS for time in ("", " %H:%M", " %H:%M:%S")))
SAMPLE = 100  # cells that tell which formats are worth trying
MOST = 0.9  # the fraction of a column's values that must be dates


def parse_date(cell: Any, form: str = ISO) -> np.datetime64 | None:
    """Return a date to the second, in UTC where it has a time zone; None where it is no date.

    Args:
        cell: a text, or a date of Python, NumPy or pandas.
        form: "iso", or a format of ``strptime``.
    """
    if is_missing(cell):
        return None
    if isinstance(cell, str):
        try:
            text = cell.strip()
            if form == ISO:
                # Python 3.10 does not know the Z of UTC.
                cell = datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] == "Z" else text)
            else:
                cell = datetime.strptime(text, form)
        except ValueError:
            return None
    if isinstance(cell, datetime) and cell.tzinfo is not None:
        cell = cell.astimezone(timezone.utc).replace(tzinfo=None)
    if not isinstance(cell, (date, np.datetime64)):
        return None
    found: Any = np.array(cell, dtype="datetime64[s]")[()]
    return found  # type: ignore[no-any-return]


def parse_dates(cells: Sequence[Any], form: str) -> NDArray[np.datetime64]:
    """Return (N,) dates to the second, NaT where a cell is none."""
    nothing = np.datetime64("NaT", "s")
    seen: dict[Any, np.datetime64] = {}  # most dates occur again and again
    found = np.full(len(cells), nothing)
    for row, cell in enumerate(cells):
        if cell not in seen:
            parsed = parse_date(cell, form)
            seen[cell] = nothing if parsed is None else parsed
        found[row] = seen[cell]
    return found


def find_formats(cells: Iterable[Any]) -> list[str]:
    """Return the formats that the most of some different values have, at least nine in ten."""
    values = list(cells)
    wanted = MOST * len(values)
    found: list[tuple[int, str]] = []
    written = any(isinstance(value, str) for value in values)
    for form in FORMATS if written else (ISO,):  # dates that are no texts fit every format
        sample = values[:SAMPLE]
        if count_dates(sample, form) >= MOST * len(sample):
            count = count_dates(values, form)
            if count and count >= wanted:
                found.append((count, form))
    most = max((count for count, _ in found), default=0)
    return [form for count, form in found if count == most]


def count_dates(values: Sequence[Any], form: str) -> int:
    """Return how many values are dates of a format."""
    return sum(parse_date(value, form) is not None for value in values)
