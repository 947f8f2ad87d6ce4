"""Rows of a request become the inputs of a model; errors name the row and the column."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.datasets.images import Images
from hierlearn.datasets.tables.dates import ISO, SINCE
from hierlearn.datasets.tables.kinds import (
    as_string,
    base_kind,
    date_format,
    parse_numbers,
    parse_values,
)
from hierlearn.datasets.tables.stream import Chunk
from hierlearn.datasets.tables.table import TableChunk
from hierlearn.errors import DataError, plural, quoted, shown
from hierlearn.pipeline.answers import known_columns
from hierlearn.pipeline.missing import MissingCells
from hierlearn.pipeline.predict import HeldImage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.pipeline import Pipeline

    Columns = Mapping[str, Sequence[Any]]  # cells by name, as many in each


EXAMPLES = {"number": 0.5, "category": "a", "text": "some words", "boolean": True, "image": ""}
VECTOR, TEXT, IMAGE = "vector", "text", "image"  # columns of a model that has no name for its own
NUMBERS = frozenset({int, float, type(None)})


def row_place(row: int, column: str | int | None = None) -> str:
    """Word the place of a row, or of a cell."""
    return f"row {row} (counted from 0)" + ("" if column is None else f", column {column!r}")


class GivenRows(TableChunk):
    """The rows of a request.

    Args:
        columns: the cells of each column.
        first: the number of the first row in its request.
    """

    remedy: ClassVar[str] = "give null if it is missing"

    def __init__(self, columns: Columns, first: int = 0) -> None:
        count = len(next(iter(columns.values())))
        super().__init__(Path("rows"), columns, range(first, first + count))

    def where(self, row: int, name: str) -> str:
        """Word the place of a cell."""
        return row_place(self.lines[row], name)

    def column(self, name: str, kind: str) -> NDArray[Any]:
        """Return (n,) values of one column, as a ``Table`` holds a column of that kind."""
        if kind == "number":
            return self.number_column(name)
        cells = [self.as_cell(row, name, cell) for row, cell in enumerate(self.cells(name))]
        return parse_values(cells, kind, lambda row: self.where(row, name), self.remedy)

    def as_cell(self, row: int, name: str, cell: Any) -> str | date | None:
        """Return a value as a file would have it; raise on a list or an object."""
        if cell is None or isinstance(cell, str):
            return cell
        if isinstance(cell, bool):
            return "true" if cell else "false"
        if isinstance(cell, (list, tuple, dict)):
            raise DataError(
                f"{self.where(row, name)}: a {type(cell).__name__} is no value of a column; give a "
                f"string, a number or null"
            )
        return cell if isinstance(cell, date) else as_string(cell)

    def texts(self, name: str) -> list[str]:
        """Return n texts, empty where one is missing."""
        for row, cell in enumerate(self.cells(name)):
            if cell is not None and not isinstance(cell, str):
                raise DataError(f"{self.where(row, name)}: {shown(cell)} is not text")
        return [cell or "" for cell in self.cells(name)]


@dataclass(frozen=True)
class Inputs:
    """What a model reads of a row.

    Attributes:
        pipeline: the model.
        kind: "table", "texts", "numbers", "vectors" or "images".
        kinds: the columns with their kinds.
        named: whether the model knows its columns by name; otherwise rows are values alone.
        width: the numbers of a vector; None where that is not known.
    """

    pipeline: Pipeline
    kind: str
    kinds: dict[str, str]
    named: bool = True
    width: int | None = None

    @classmethod
    def of(cls, pipeline: Pipeline) -> Inputs:
        """Return what a model reads, as it was trained."""
        ((kind, name),) = known_columns(pipeline).items()
        named = name is not None
        if kind == "kinds":
            return cls(pipeline, "table", dict(name))
        if kind == "text":
            return cls(pipeline, "texts", {name or TEXT: "text"}, named=named)
        if kind == "image":
            return cls(pipeline, "images", {name or IMAGE: "image"}, named=named)
        if kind == "features" and name:
            return cls(pipeline, "numbers", dict.fromkeys(name, "number"), width=len(name))
        step: Any = pipeline.preprocessor
        width = None if step is None else step.input_columns
        if step is None and pipeline.network_spec is not None:
            width = pipeline.network_spec.inputs.width
        return cls(pipeline, "vectors", {name or VECTOR: "vector"}, named=named, width=width)

    # ------------------------------------------------------------------ rows -> columns

    def columns(self, rows: Any) -> dict[str, list[Any]]:
        """Return the rows of a request as columns; cells are checked later.

        Args:
            rows: a list of objects, of texts or of lists of numbers, as JSON gives them.
        """
        if not isinstance(rows, list):
            raise DataError(f"rows must be a list of {self.described}, not {shown(rows)}")
        if not rows:
            raise DataError(f"rows is empty; give a list of {self.described}")
        if isinstance(rows[0], dict):
            if not self.named:
                raise DataError(
                    f"{row_place(0)} is an object, but the model does not know its columns by "
                    f"name; give {self.described}"
                )
            try:
                return {name: [row[name] for row in rows] for name in self.kinds}
            except (KeyError, TypeError, IndexError):
                raise self._misfit(rows) from None
        form: Any = {"texts": str, "images": str, "numbers": list, "vectors": list}.get(self.kind)
        for number, row in enumerate(rows):
            if form is None or not isinstance(row, form):
                raise self._misfit(rows, number)
            if self.kind == "numbers" and len(row) != self.width:
                raise DataError(
                    f"{row_place(number)} has {plural(len(row), 'number')}, but the model reads "
                    f"{self.width:,}"
                )
        if self.kind != "numbers":
            return {next(iter(self.kinds)): rows}
        return {
            name: list(cells)
            for name, cells in zip(self.kinds, zip(*rows, strict=True), strict=True)
        }

    def _misfit(self, rows: list[Any], number: int | None = None) -> DataError:
        """Return the error of the first row that is of another form."""
        for row, one in enumerate(rows) if number is None else ():
            if not isinstance(one, dict):
                number = row
                break
            lacking = [name for name in self.kinds if name not in one]
            if lacking:
                return DataError(
                    f"{row_place(row)} lacks {plural(len(lacking), 'column')}: "
                    f"{quoted(lacking, most=10)}; it has {quoted(list(one), most=10)}; give null "
                    f"where a value is missing"
                )
        number = number or 0
        return DataError(
            f"{row_place(number)} is {shown(rows[number])}; give {self.described}, all of one form"
        )

    @property
    def described(self) -> str:
        """What rows may be, for errors and for the page."""
        names = quoted(self.kinds, most=10)
        alone = {
            "texts": "texts",
            "images": "images in base64",
            "numbers": f"lists of {self.width} numbers",
            "vectors": f"lists of {self.width or 'as many'} numbers",
        }.get(self.kind)
        objects = (
            f"objects with {plural(len(self.kinds), 'column')} {names}" if self.named else None
        )
        return " or ".join(one for one in (objects, alone) if one)

    def example(self) -> Any:
        """Return an invented row as a request has it."""

        def cell(kind: str) -> Any:
            if base_kind(kind) == "date":
                form = date_format(kind).partition(SINCE)[0]
                return datetime(2024, 5, 17).strftime("%Y-%m-%d" if form == ISO else form)
            return [0.5] * (self.width or 3) if kind == "vector" else EXAMPLES[kind]

        row = {name: cell(kind) for name, kind in self.kinds.items()}
        return row if self.named else next(iter(row.values()))

    # ------------------------------------------------------------------ columns -> inputs

    def chunk(self, columns: Columns, first: int = 0, *, learns: bool = False) -> Chunk:
        """Return columns as the inputs of the model.

        Args:
            columns: those of ``kinds``; others are ignored.
            first: the number of the first row in its request.
            learns: whether the model learns from them, and so does not impute what they lack.

        Raises:
            DataError: naming the row and the column of a value that the model cannot read.
        """
        lacking = [name for name in self.kinds if name not in columns]
        if lacking:
            raise DataError(
                f"the rows lack {plural(len(lacking), 'column')}: {quoted(lacking, most=10)}; they "
                f"have {quoted(columns, most=10)}"
            )
        rows = GivenRows({name: columns[name] for name in self.kinds}, first)
        name = next(iter(self.kinds))
        inputs: Any
        if self.kind == "table":
            inputs = rows.table(self.kinds)
        elif self.kind == "texts":
            inputs = rows.texts(name)
        elif self.kind == "images":
            inputs = Images([decoded(rows, row, name) for row in range(len(rows))])
        elif self.kind == "vectors":
            inputs = self._vectors(rows, name)
        else:
            inputs = rows.numbers(list(self.kinds))
        cells = MissingCells(self.pipeline, learns=learns)
        cells.add(inputs, lambda row, name: row_place(rows.lines[row], name))
        cells.warn(counted=False)
        return Chunk(inputs, rows.lines)

    def _vectors(self, rows: GivenRows, name: str) -> NDArray[np.float32]:
        """Return (n, D) of lists of numbers."""
        cells = rows.cells(name)
        width = self.width or (len(cells[0]) if isinstance(cells[0], (list, tuple)) else 0)

        def place(row: int) -> str:
            return rows.where(row, name) if self.named else row_place(rows.lines[row])

        for row, cell in enumerate(cells):
            if not isinstance(cell, (list, tuple, np.ndarray)) or len(cell) != width:
                raise DataError(f"{place(row)}: {shown(cell)} is no list of {width:,} numbers")
        with np.errstate(over="ignore"):  # values beyond float32 are refused below
            values = np.stack([parse_numbers(list(cell))[0] for cell in cells]).astype(np.float32)
        wrong = np.argwhere(~np.isfinite(values))
        if len(wrong):
            row, number = wrong[0].tolist()
            raise DataError(
                f"{place(row)}: entry {number} of the list, {shown(cells[row][number])}, is not a "
                f"finite number of float32"
            )
        return values


def decoded(rows: GivenRows, row: int, name: str) -> HeldImage:
    """Return an image of a request from its base64."""
    cell = rows.cells(name)[row]
    if isinstance(cell, bytes):
        return HeldImage(rows.where(row, name), cell)
    try:
        return HeldImage(rows.where(row, name), base64.b64decode(cell, validate=True))
    except (TypeError, ValueError, binascii.Error):
        raise DataError(
            f"{rows.where(row, name)}: {shown(cell)} is no base64 of an image file"
        ) from None
