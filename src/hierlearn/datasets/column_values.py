"""Cells as the values of a column: categories, texts, dates and booleans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.cells import is_mark
from hierlearn.datasets.column_kinds import FALSE, TRUE, as_string, base_kind, date_format
from hierlearn.datasets.dates import parse_dates
from hierlearn.errors import DataError
from hierlearn.hierarchy.names import is_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


def parse_values(
    cells: Sequence[Any], kind: str, where: Callable[[int], str], remedy: str
) -> NDArray[Any]:
    """Return (N,) values of a column that holds no numbers.

    Args:
        cells: Python values.
        kind: category, text, boolean, or date with its format.
        where: words the place of a row, for errors.
        remedy: what to do about a cell that is not of the kind.
    """
    base = base_kind(kind)
    if base == "date":
        form = date_format(kind)
        dates = parse_dates(cells, form)
        reason = f"is not a date of the form {form}; {remedy}"
        check_values(np.isnat(dates), cells, where, reason)
        return dates
    if base == "boolean":
        words = {cell: parse_boolean(cell) for cell in {c for c in cells if isinstance(c, str)}}
        values = [words[c] if isinstance(c, str) else parse_boolean(c) for c in cells]
        booleans = np.array(values, dtype=np.float32)
        reason = f"is neither true nor false; {remedy}"
        check_values(np.isnan(booleans), cells, where, reason)
        return booleans
    found = np.empty(len(cells), dtype=object)
    found[:] = [cell.strip() if isinstance(cell, str) else as_string(cell) for cell in cells]
    return found


def check_values(
    failed: NDArray[np.bool_], cells: Sequence[Any], where: Callable[[int], str], reason: str
) -> None:
    """Raise on the first cell that has a value, but not one of the kind."""
    for row in np.flatnonzero(failed).tolist():
        if not (is_missing(cells[row]) or is_mark(cells[row])):
            raise DataError(f"{where(row)}: {cells[row]!r} {reason}")


def parse_boolean(cell: Any) -> float:
    """Return 1 or 0; NaN where a cell is neither true nor false."""
    if isinstance(cell, (bool, np.bool_)):
        return float(cell)
    word = str(cell).strip().lower()
    if word in (*TRUE, "1", "1.0"):
        return 1.0
    return 0.0 if word in (*FALSE, "0", "0.0") else float("nan")
