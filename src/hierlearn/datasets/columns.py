"""Turning text cells into numbers and classes, with errors that name the line and the column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import DataError, LabelError, place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy

LARGEST = float(np.finfo(np.float32).max)


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
        if not all(is_plain(cell) for cell in filled if isinstance(cell, str)):
            raise ValueError
        values = np.array(filled, dtype=np.str_).astype(np.float64)
    except ValueError:
        values = np.array([parse_number(str(cell)) for cell in filled])
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
        narrow = values.astype(np.float32)
    bad = np.flatnonzero(known & ~np.isfinite(narrow))
    if len(bad):
        cell, where = cells[bad[0]], place(path, lines[bad[0]], column)
        if np.isfinite(values[bad[0]]):
            raise DataError(
                f"{where}: {cell!r} does not fit into float32, which ends at {LARGEST:.1e}; "
                f"scale the column"
            )
        raise DataError(f"{where}: {cell!r} is not a finite number; {remedy}")
    return narrow


def is_plain(text: str) -> bool:
    """Whether a text is free of what only Python takes for a number: 1_000, other scripts."""
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
    path: Path | str,
    lines: Sequence[int],
    exact: bool = False,
) -> list[list[str]]:
    """Give each label of each row the name of its class; ``exact`` refuses bare names."""
    rows: list[list[str]] = []
    for labels, line in zip(raw, lines, strict=True):
        try:
            rows.append([hierarchy.names[hierarchy.index(one, exact=exact)] for one in labels])
        except LabelError as error:
            raise LabelError(f"{place(path, line)}: {error}") from None
    return rows
