"""Frames of pandas and polars as tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.datasets.cells import as_float32, is_mark, parse_any
from hierlearn.datasets.table import Table, check_columns
from hierlearn.datasets.table_file import TableChunk
from hierlearn.datasets.typed_columns import type_columns
from hierlearn.errors import DataError, unknown_name
from hierlearn.files import refuse_duplicates
from hierlearn.hierarchy.names import is_missing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

NUMERIC = re.compile(r"(u?int|float)\d+")  # dtypes of NumPy, pandas and polars, in lower case
PLAIN = re.compile(rf"{NUMERIC.pattern}|bool|complex|sparse|decimal|double")
CATEGORY = re.compile(r"(category|categorical|enum)\b")


class FrameChunk(TableChunk):
    """The rows of a frame; a row is named by its number from 0."""

    remedy: ClassVar[str] = "leave it empty if it is missing, or give a categorical column"
    how_to_ignore: ClassVar[str] = "drop it"
    how_to_use: ClassVar[str] = "make it categorical"

    def __init__(self, frame: Any) -> None:
        columns = {str(name): frame[name] for name in frame.columns}
        refuse_duplicates([str(name) for name in frame.columns], "the table")
        super().__init__(Path("the table"), columns, range(frame.shape[0]))

    def where(self, row: int, name: str) -> str:
        """Word the place of a cell."""
        return f"row {row} (counted from 0), column {name!r}"

    def cells(self, name: str) -> Sequence[Any]:
        """Return the cells of a column as Python values, None where one is missing."""
        return [None if is_missing(cell) else cell for cell in self.columns[name].to_list()]

    def declared_kind(self, name: str) -> str | None:
        """Return the kind that the type of a column says: a categorical is a category."""
        return "category" if CATEGORY.match(dtype_name(self.columns[name])) else None

    def number_column(self, name: str) -> NDArray[np.float32]:
        """Return (n,) float32, NaN where a value is missing."""
        series = self.columns[name]
        if NUMERIC.match(dtype_name(series)):
            values = plain_numbers(series)
            missing = np.isnan(values)
        else:
            cells = self.cells(name)
            values = parse_any(cells, "")
            missing = np.array([is_mark(cell) for cell in cells], dtype=bool)
        wrong = np.flatnonzero(~np.isfinite(values) & ~missing)
        if len(wrong):
            row = int(wrong[0])
            cell = self.cells(name)[row]
            raise DataError(
                f"{self.where(row, name)}: {cell!r} is not a finite number; {self.remedy}"
            )
        found: NDArray[np.float32] = as_float32(values, name)
        return found


def plain_numbers(series: Any) -> NDArray[np.float64]:
    """Return a numeric column as float64, NaN where a value is missing."""
    try:
        found: NDArray[np.float64] = series.to_numpy(dtype=np.float64, na_value=np.nan)
    except TypeError:  # polars takes neither argument
        found = series.to_numpy().astype(np.float64)
    return found


def dtype_name(series: Any) -> str:
    """Return the name of a column's type in lower case."""
    return str(series.dtype).lower()


def is_frame(X: Any) -> bool:
    """Whether inputs are a frame of pandas or polars."""
    return all(hasattr(X, name) for name in ("columns", "dtypes", "shape"))


def is_numeric(frame: Any) -> bool:
    """Whether every column of a frame is of a numeric or boolean type."""
    return all(PLAIN.match(str(dtype).lower()) for dtype in list(frame.dtypes))


def table_from_frame(frame: Any, kinds: Mapping[str, str] | None = None) -> Table | None:
    """Return the training rows of a frame as a table; None where all columns are numbers.

    Args:
        frame: of pandas or polars; a categorical column is a category.
        kinds: the kinds of some columns by name; the others are found.
    """
    chunk = FrameChunk(frame)
    given = dict(kinds or {})
    names = tuple(chunk.columns)
    for name in given:
        if name not in names:
            raise DataError(unknown_name("column", name, names))
    found = type_columns(chunk, names, given)
    if found.numbers is not None and not (given or found.numbers != list(names)):
        return None
    return found.table(names)


def new_rows(frame: Any, kinds: Mapping[str, str], known: Sequence[str] = ()) -> Table:
    """Return rows to predict on, parsed as the training rows were.

    Args:
        frame: its columns may stand in any order.
        kinds: the kind of every column that is read.
        known: further columns that may be there.
    """
    chunk = FrameChunk(frame)
    check_columns(tuple(chunk.columns), tuple(kinds), known)
    return chunk.table(kinds)
