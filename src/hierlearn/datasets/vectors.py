"""Vectors of rows that another model made: a file beside the table, or a column of lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError, plural
from hierlearn.files.arrays import ENDINGS, read_matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.datasets.table_file import TableChunk, TableFile


def is_vector_file(name: str | Path | None) -> bool:
    """Whether embeddings are named by a file rather than by a column."""
    return name is not None and Path(name).suffix.lower() in ENDINGS


class Vectors:
    """The vectors of the rows of a table, some rows at a time.

    Args:
        named: a file with one row per row of the table, or a column of the table with lists.
        table: the table.

    Attributes:
        columns: the columns of the table that are read for them.
    """

    def __init__(self, named: str | Path, table: TableFile) -> None:
        self.named, self.table = named, table
        self.rows = read_matrix(named) if is_vector_file(named) else None
        self.columns: tuple[str, ...] = ()
        self.width: int | None = None
        self.done = 0
        if self.rows is None:
            table.check_columns([str(named)])
            self.columns = (str(named),)
        elif table.num_rows is not None:
            self.check_count(table.num_rows)

    def check_count(self, rows: int) -> None:
        """Raise on another number of rows than there are vectors."""
        if self.rows is not None and rows != len(self.rows):
            raise DataError(
                f"{self.named} has {plural(len(self.rows), 'vector')}, but {self.table.path} has "
                f"{plural(rows, 'row')}; write one vector per row, in the same order"
            )

    def restart(self, before: int = 0) -> None:
        """Begin again, with the row that so many come before."""
        self.done = before

    def next(self, chunk: TableChunk) -> NDArray[np.float32]:
        """Return the (n, D) vectors of the rows that follow."""
        begin, self.done = self.done, self.done + len(chunk)
        if self.rows is None:
            return self._checked(list_column(chunk, str(self.named)), chunk)
        if self.done > len(self.rows):
            raise DataError(
                f"{self.named} has {plural(len(self.rows), 'vector')}, but {self.table.path} has "
                f"more rows; write one vector per row, in the same order"
            )
        return self.rows[begin : self.done]

    def _checked(self, found: NDArray[np.float32], chunk: TableChunk) -> NDArray[np.float32]:
        """Refuse vectors of another width than those before, and values that are not finite."""
        name = str(self.named)
        if self.width not in (None, found.shape[1]):
            raise DataError(
                f"{chunk.where(0, name)}: a vector of {found.shape[1]} numbers, after ones of "
                f"{self.width}; all have the same length"
            )
        self.width = found.shape[1]
        wrong = np.flatnonzero(~np.isfinite(found).all(axis=1))
        if len(wrong):
            raise DataError(
                f"{chunk.where(int(wrong[0]), name)}: the vector holds a value that is not a "
                f"finite float32; leave the row out"
            )
        return found


def list_column(chunk: TableChunk, name: str) -> NDArray[np.float32]:
    """Return (n, D) the lists of a column; cells of a CSV file hold JSON, ``[0.1, 0.2]``."""
    fast = arrow_lists(chunk.columns[name])
    if fast is not None:
        return fast
    rows: list[NDArray[np.float32]] = []
    for place, cell in enumerate(chunk.cells(name)):
        values = parsed(cell)
        if not isinstance(values, list) or not values:
            raise DataError(
                f"{chunk.where(place, name)}: {str(cell)[:60]!r} is no list of numbers; name a "
                f"column of vectors"
            )
        if rows and len(values) != len(rows[0]):
            raise DataError(
                f"{chunk.where(place, name)}: a vector of {len(values)} numbers, after ones of "
                f"{len(rows[0])}; all have the same length"
            )
        try:
            rows.append(np.array(values, dtype=np.float32))
        except (TypeError, ValueError, OverflowError):
            raise DataError(
                f"{chunk.where(place, name)}: the list holds something else than numbers"
            ) from None
    return np.stack(rows)


def parsed(cell: Any) -> Any:
    """Return the list that a cell holds as text; other cells as they are."""
    if not isinstance(cell, str):
        return cell
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return None


def arrow_lists(column: Any) -> NDArray[np.float32] | None:
    """Return an Arrow column of lists of equal length; None where its cells must be looked at."""
    kind = getattr(column, "type", None)
    if kind is None or not str(kind).startswith(("list", "large_list", "fixed_size_list")):
        return None
    from pyarrow import compute, types

    if not types.is_floating(kind.value_type) or column.null_count or not len(column):
        return None
    lengths = compute.list_value_length(column)
    least, most = (int(one.as_py()) for one in compute.min_max(lengths).values())
    values = compute.list_flatten(column)
    if least != most or not least or values.null_count:
        return None
    with np.errstate(over="ignore"):  # what is too large for float32 is refused later
        found = np.array(values, dtype=np.float32)
    return found.reshape(len(column), most)
