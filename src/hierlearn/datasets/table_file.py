"""TableFile: what every table format offers, whether it is read at once or in chunks.

A format is one class, registered under its file endings in ``readers.READERS``. It names its
columns and yields its rows in chunks; a chunk returns cells, and numbers and texts made of them.
Formats that can read any group of rows alone are ``PartitionedTableFile``s: training can stream
from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.datasets.cells import numeric_column
from hierlearn.datasets.column_values import parse_values
from hierlearn.datasets.table import Table
from hierlearn.errors import DataError, place, quoted, shown, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hierlearn.files.locations import Location

REMEDY = (
    "leave the cell empty if it is missing, or choose the columns with features= or their kinds "
    "with column_kinds="
)


class TableChunk:
    """Some consecutive rows of a table.

    Args:
        path: the file, for errors.
        columns: the cells of each column that was asked for.
        lines: the line of each row in the file, or its number from 1 where there are no lines.

    Attributes:
        remedy: what to do about a cell of another kind, for errors.
        how_to_ignore: what to do to leave a column out.
        how_to_use: what to do to use one that would be left out.
    """

    remedy: ClassVar[str] = REMEDY
    how_to_ignore: ClassVar[str] = "leave it out with ignore="
    how_to_use: ClassVar[str] = "name its kind with column_kinds="

    def __init__(self, path: Location, columns: Mapping[str, Any], lines: Sequence[int]) -> None:
        self.path = path
        self.columns = columns
        self.lines = lines

    def __len__(self) -> int:
        return len(self.lines)

    def cells(self, name: str) -> Sequence[Any]:
        """Return the cells of a column as Python values, None or "" where one is missing."""
        found: Sequence[Any] = self.columns[name]
        return found

    def distinct(self, name: str) -> tuple[list[Any], NDArray[np.int64]]:
        """Return the distinct cells of a column as they first occur, and which each row has."""
        cells = self.cells(name)
        numbers = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}
        return list(numbers), np.fromiter(map(numbers.__getitem__, cells), np.int64, len(cells))

    def numbers(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return (n, D) float32 of some columns, NaN where a value is missing."""
        found = np.empty((len(self), len(names)), dtype=np.float32)
        for position, name in enumerate(names):
            found[:, position] = self.number_column(name)
        return found

    def number_column(self, name: str) -> NDArray[np.float32]:
        """Return (n,) float32 of one column; a format that stores numbers overrides this."""
        return numeric_column(
            self.cells(name),
            path=self.path,
            lines=self.lines,
            column=name,
            missing="",
            remedy=self.remedy,
        )

    def column(self, name: str, kind: str) -> NDArray[Any]:
        """Return (n,) values of one column, as a ``Table`` holds a column of that kind."""
        if kind == "number":
            return self.number_column(name)
        if kind != "text":
            with suppress(TypeError):  # lists cannot be told apart by a dictionary
                values, codes = self.distinct(name)
                first = first_rows(codes, len(values))
                where = lambda number: self.where(int(first[number]), name)  # noqa: E731
                found: NDArray[Any] = parse_values(values, kind, where, self.remedy)[codes]
                return found
        return parse_values(self.cells(name), kind, lambda row: self.where(row, name), self.remedy)

    def table(self, kinds: Mapping[str, str]) -> Table:
        """Return the columns of the given names and kinds."""
        return Table({name: self.column(name, kind) for name, kind in kinds.items()}, kinds)

    def declared_kind(self, name: str) -> str | None:
        """Return the kind that a format stores with a column; None where the cells must tell."""
        del name
        return None

    def where(self, row: int, name: str) -> str:
        """Word the place of a cell, for errors."""
        return place(self.path, self.lines[row], name)

    def texts(self, name: str) -> list[str]:
        """Return n texts, empty where one is missing."""
        texts: list[str] = []
        for row, cell in enumerate(self.cells(name)):
            if cell is not None and not isinstance(cell, str):
                raise DataError(
                    f"{self.where(row, name)}: {shown(cell)} is not text; name a column of texts"
                )
            texts.append(cell or "")
        return texts


def first_rows(codes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the row at which each of ``count`` distinct cells occurs first."""
    found = np.zeros(count, dtype=np.int64)
    found[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the last one written is the first row
    return found


class TableFile(ABC):
    """A table in a file. Opening it reads the header alone; nothing stays open.

    Args:
        path: the file.

    Attributes:
        path: the file.
        columns: the names of its columns, in order.
        num_rows: how many rows there are, None where only reading would tell.
    """

    format_name: ClassVar[str]
    takes_delimiter: ClassVar[bool] = False  # as a second argument
    path: Location
    columns: tuple[str, ...]
    num_rows: int | None = None

    @abstractmethod
    def __init__(self, path: Path) -> None: ...

    @abstractmethod
    def chunks(
        self, columns: Sequence[str], rows_per_chunk: int | None = None
    ) -> Iterator[TableChunk]:
        """Yield the rows in order, without empty chunks.

        Args:
            columns: the columns to read, each a column of the file.
            rows_per_chunk: the most rows of a chunk; None for all rows in one.
        """

    def read(self, columns: Sequence[str]) -> TableChunk:
        """Return all rows as one chunk, or refuse a table without rows."""
        for chunk in self.chunks(columns):
            return chunk
        raise self.no_rows()

    def check_columns(self, names: Iterable[str]) -> None:
        """Refuse a name that is not a column of the file."""
        known = frozenset(self.columns)
        for name in names:
            if name not in known:
                raise DataError(f"{self.path}: {unknown_name('column', name, self.columns)}")

    def check_inputs(self, names: Iterable[str]) -> None:
        """Refuse a file that lacks columns which a model reads; all of them are named."""
        lacking = [name for name in names if name not in self.columns]
        if lacking:
            what = "columns" if len(lacking) > 1 else "column"
            raise DataError(
                f"{self.path} lacks the {what} {quoted(lacking, most=10)}, which the model reads; "
                f"it has {quoted(self.columns, most=10)}"
            )

    def no_rows(self) -> DataError:
        """Return the error of a table without rows."""
        return DataError(f"{self.path} has a header but no rows")


class PartitionedTableFile(TableFile):
    """A table whose rows are stored in groups, each of which can be read alone.

    Attributes:
        group_offsets: (G + 1,) the number of the first row of each group, and the number of rows.
        group_bytes: the size of each group in the file, by which a file is told from another.
    """

    group_offsets: NDArray[np.int64]
    group_bytes: list[int]
    num_rows: int

    @abstractmethod
    def read_group(self, group: int, columns: Sequence[str]) -> TableChunk:
        """Return the rows of a group."""
