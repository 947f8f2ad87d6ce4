"""Turning text cells into numbers, with errors that name the line and the column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import DataError, place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


def numeric_column(
    cells: Sequence[object],
    *,
    path: Path | str,
    lines: Sequence[int],
    column: str,
    missing: str,
    remedy: str,
) -> NDArray[np.float32]:
    """Turn cells into (N,) float32; NaN where a cell is None or the ``missing`` mark.

    Args:
        cells: texts or numbers.
        path: the file, for errors.
        lines: the line of each cell, for errors.
        column: the column's name, for errors.
        missing: the text that stands for a missing value.
        remedy: what to do about a value that is no finite number.
    """
    known = np.array([cell is not None and cell != missing for cell in cells], dtype=bool)
    filled = [cell if is_known else "nan" for cell, is_known in zip(cells, known, strict=True)]
    try:
        values = np.array(filled, dtype=np.str_).astype(np.float64)
    except ValueError:
        values = np.array([parse(cell) for cell in filled])
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
        narrow = values.astype(np.float32)
    bad = np.flatnonzero(known & ~np.isfinite(narrow))
    if len(bad):
        where = place(path, lines[bad[0]], column)
        raise DataError(f"{where}: {cells[bad[0]]!r} is not a finite number; {remedy}")
    return narrow


def parse(cell: object) -> float:
    """Return the number in a cell, NaN where there is none."""
    try:
        return float(str(cell))
    except ValueError:
        return float("nan")
