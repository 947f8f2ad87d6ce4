"""Cells of a table as numbers and labels, with errors that name the line and the column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError, LabelError, place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy

# No value, where a number is due.
MARKS = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
LARGEST = float(np.finfo(np.float32).max)


def is_mark(cell: object) -> bool:
    """Whether a cell of numbers, dates or booleans says that there is no value."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in MARKS)


def numeric_column(
    cells: Sequence[object],
    *,
    path: object,
    lines: Sequence[int],
    column: str,
    missing: str,
    remedy: str,
) -> NDArray[np.float32]:
    """Turn cells into (N,) float32; NaN where a cell is a mark such as NA.

    Args:
        cells: texts or numbers.
        path: the file, for errors.
        lines: the line of each cell, for errors.
        column: the column's name, for errors.
        missing: the text that stands for a missing value, beside MARKS.
        remedy: what to do about a value that is not a finite number.
    """
    values = parse_plain(cells, missing)
    if values is None:
        values = parse_until_wrong(cells, missing)
    with np.errstate(over="ignore"):  # values beyond float32 are refused below
        narrow = values.astype(np.float32)
    for row in np.flatnonzero(~np.isfinite(narrow)).tolist():
        cell = cells[row]
        if cell == missing or is_mark(cell):
            continue
        where = place(path, lines[row], column)
        if np.isfinite(values[row]):
            raise DataError(
                f"{where}: {cell!r} does not fit into float32, whose largest value is "
                f"{LARGEST:.1e}; scale the column"
            )
        raise DataError(f"{where}: {cell!r} is not a finite number; {remedy}")
    return narrow


def as_float32(values: Any, name: str | None = None) -> Any:
    """Return numbers as files give them, so that rows are the same to the last bit anyhow.

    Arrays of integers and booleans that float32 holds exactly stay as they are, and so does what is
    no array of numbers.

    Args:
        values: (N, D) numbers, or (N,) of one column.
        name: of that column, for errors.
    """
    wide = isinstance(values, np.ndarray) and values.dtype.kind in "fiu"
    if not wide or np.can_cast(values.dtype, np.float32):
        return values
    with np.errstate(over="ignore"):  # the result is checked
        found = values.astype(np.float32)
    wrong = np.argwhere(np.isinf(found) & np.isfinite(values))
    if len(wrong):
        row = int(wrong[0][0])
        column = wrong[0][1] if name is None else repr(name)
        raise DataError(
            f"row {row} (counted from 0), column {column}: {values[tuple(wrong[0])]} does not fit "
            f"into float32, whose largest value is {LARGEST:.1e}; scale the column"
        )
    return found


def parse_plain(cells: Sequence[Any], missing: str) -> NDArray[np.float64] | None:
    """Parse texts that are all numbers or missing; None where one of them is something else."""
    try:
        if not is_plain("".join(cells)):
            return None
        if missing in cells:
            cells = ["nan" if cell == missing else cell for cell in cells]
        return np.array(list(map(float, cells)), dtype=np.float64)
    except (TypeError, ValueError):
        return None


def parse_until_wrong(cells: Sequence[object], missing: str) -> NDArray[np.float64]:
    """Parse texts and numbers up to the first that is not finite; NaN where a cell is missing."""
    found: list[float] = []
    for cell in cells:
        if cell == missing or is_mark(cell):
            found.append(float("nan"))
            continue
        found.append(parse_number(str(cell)))
        if not np.isfinite(found[-1]):
            break
    return np.array(found, dtype=np.float64)


def parse_any(cells: Sequence[object], missing: str) -> NDArray[np.float64]:
    """Parse texts and numbers; NaN where a cell is neither."""
    nan = float("nan")
    found = [nan if cell == missing or is_mark(cell) else parse_number(str(cell)) for cell in cells]
    return np.array(found, dtype=np.float64)


def is_plain(text: str) -> bool:
    """Whether a text is free of what Python alone reads as a number: 1_000, other scripts."""
    return "_" not in text and text.isascii()


def parse_number(text: str) -> float:
    """Return the number in a text, NaN where there is none."""
    try:
        return float(text) if is_plain(text) else float("nan")
    except ValueError:
        return float("nan")


def name_labels(
    raw: Sequence[Sequence[str]],
    hierarchy: Hierarchy,
    *,
    path: object,
    lines: Sequence[int],
    exact: bool = False,
) -> list[list[str]]:
    """Return each label of each row as the name of its class; ``exact`` refuses bare names."""
    rows: list[list[str]] = []
    for labels, line in zip(raw, lines, strict=True):
        try:
            rows.append([hierarchy.names[hierarchy.index(one, exact=exact)] for one in labels])
        except LabelError as error:
            raise LabelError(f"{place(path, line)}: {error}") from None
    return rows
