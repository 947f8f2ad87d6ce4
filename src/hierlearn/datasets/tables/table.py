"""Tables: a ``Table`` of inputs, and the files and frames that it is read from.

A ``Table`` takes the place of a Dataset's inputs: one array per column, each of its own kind.

    number, boolean  (N,) float32, NaN where a value is missing; booleans are 0 and 1
    category, text   (N,) strings, empty where a value is missing
    date             (N,) datetime64[s], NaT where a value is missing

A file format is one ``TableFile``, registered under its endings in ``readers.READERS``. It names
its columns and yields its rows in chunks; a chunk returns cells, and numbers and texts made of
them. Formats that can read any group of rows alone are ``PartitionedTableFile``s: training can
stream from them.
"""

from __future__ import annotations

import json
import re
import warnings
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from hierlearn.datasets.tables.dates import find_formats, with_century
from hierlearn.datasets.tables.kinds import (
    ID_NAME,
    KINDS,
    LARGEST,
    LIKE_AN_ID,
    NO_VALUE,
    ONE_VALUE,
    FoundKind,
    as_float32,
    as_string,
    base_kind,
    check_kind,
    count_values,
    date_format,
    find_kind,
    is_mark,
    kind_of,
    parse_numbers,
    parse_values,
    without_missing,
)
from hierlearn.errors import DataError, DataWarning, arg, place, plural, quoted, shown, unknown_name
from hierlearn.files import refuse_duplicates
from hierlearn.hierarchy.labels import row_numbers
from hierlearn.hierarchy.names import is_missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.files.locations import Location


NAMED = 10  # columns of a kind that a summary names
MANY = {"category": "categories"}  # plurals that do not end in s alone
REMEDY = (
    f"leave the cell empty if it is missing, or choose the columns with {arg('features=')} or "
    "their kinds "
    f"with {arg('column_kinds=')}"
)
NUMERIC = re.compile(r"(u?int|float)\d+")  # dtypes of NumPy, pandas and polars, in lower case
PLAIN = re.compile(rf"{NUMERIC.pattern}|bool|complex|sparse|decimal|double")
CATEGORY = re.compile(r"(category|categorical|enum)\b")


class Table:
    """Columns of different kinds, by name.

    Args:
        columns: one (N,) array per column, as the kind of the column has it.
        kinds: the kind of every column: number, category, text, boolean, or date with its format.
        ignored: the columns that are not inputs, with the reason.
        order: the names of all columns, ignored ones too, as they were given; by default those of
            ``columns`` first.

    Attributes:
        names: the names of the columns.
        columns: the arrays by name.
    """

    kind: ClassVar[str] = "table"

    def __init__(
        self,
        columns: Mapping[str, NDArray[Any]],
        kinds: Mapping[str, str],
        ignored: Mapping[str, str] | None = None,
        order: Sequence[str] = (),
    ) -> None:
        if not columns:
            raise DataError("a table needs at least one column that is an input")
        self.columns = {name: as_kind(name, columns[name], kinds[name]) for name in columns}
        self.kinds = {name: kinds[name] for name in columns}
        self.ignored = dict(ignored or {})
        self.order = tuple(order) or (*self.columns, *self.ignored)
        sizes = {name: len(column) for name, column in self.columns.items()}
        if len(set(sizes.values())) > 1:
            raise DataError(f"the columns of a table must have the same length, not {sizes}")

    def __repr__(self) -> str:
        counts = Counter(map(base_kind, self.kinds.values()))
        kinds = ", ".join(f"{counts[kind]:,} {kind}" for kind in KINDS if counts[kind])
        return f"Table({plural(len(self), 'row')} of {plural(len(self.kinds), 'column')}: {kinds})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that are inputs."""
        return tuple(self.columns)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)."""
        return len(self), len(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, rows: Any) -> Table:
        """Return some rows: a slice, row numbers, or a boolean mask."""
        picked = rows if isinstance(rows, slice) else row_numbers(rows, len(self))
        columns = {name: column[picked] for name, column in self.columns.items()}
        return Table(columns, self.kinds, self.ignored, self.order)

    def named(self, *kinds: str) -> list[str]:
        """Return the names of the columns of some kinds."""
        return [name for name, kind in self.kinds.items() if base_kind(kind) in kinds]

    def missing(self, name: str) -> NDArray[np.bool_]:
        """Return (N,) where a column has no value."""
        column = self.columns[name]
        tests: dict[str, Any] = {"O": lambda values: values == "", "M": np.isnat}
        return tests.get(column.dtype.kind, np.isnan)(column)  # type: ignore[no-any-return]

    def summary(self) -> str:
        """Return how many columns of each kind there are, and which are ignored."""
        return columns_summary(self.kinds, self.ignored)

    def blocks(self) -> Iterator[bytes]:
        """Yield the columns as bytes, for a digest."""
        yield json.dumps(["table", self.kinds]).encode()
        for column in self.columns.values():
            if column.dtype.kind == "O":
                yield json.dumps(column.tolist()).encode()
            else:
                yield column.dtype.str.encode() + np.ascontiguousarray(column).tobytes()


def as_kind(name: str, column: Any, kind: str) -> NDArray[Any]:
    """Return a column in the type of its kind; raise where it cannot be."""
    base = base_kind(check_kind(name, kind))
    values = np.asarray(column)
    if values.ndim != 1:
        raise DataError(f"column {name!r} {values.shape} must be (N,): one value per row")
    if base in ("category", "text"):
        wanted = values.dtype.kind in "OU"
        values = values.astype(object, copy=False)
    elif base == "date":
        wanted = values.dtype.kind == "M"
        values = values.astype("datetime64[s]", copy=False) if wanted else values
    else:
        wanted = values.dtype.kind in "fiub"
        values = as_float32(values, name).astype(np.float32, copy=False) if wanted else values
    if not wanted:
        raise DataError(f"column {name!r} is of dtype {values.dtype}, which is no {base}")
    return values


def columns_summary(kinds: Mapping[str, str], ignored: Mapping[str, str]) -> str:
    """Return the columns of each kind, dates with their formats, and which are ignored."""
    parts = []
    for kind in KINDS:
        names = [name for name, one in kinds.items() if base_kind(one) == kind]
        if not names:
            continue
        shown = [
            f"{name} ({date_format(kinds[name])})" if kind == "date" else name
            for name in names[:NAMED]
        ]
        parts.append(
            f"{plural(len(names), kind, MANY.get(kind))}: {', '.join(shown)}"
            f"{f' and {len(names) - NAMED:,} more' if len(names) > NAMED else ''}"
        )
    left_out = ", ".join(
        f"{name} ({reason})" if reason else name for name, reason in list(ignored.items())[:10]
    )
    more = f" and {len(ignored) - 10} more" if len(ignored) > 10 else ""
    return "; ".join(parts + ([f"ignored: {left_out}{more}"] if ignored else []))


def check_columns(found: Sequence[str], wanted: Sequence[str], known: Sequence[str] = ()) -> None:
    """Raise on columns that are missing, and on those that are not known.

    Args:
        found: the columns of new rows.
        wanted: the columns of the training rows.
        known: further columns, which are not read.
    """
    there, read = frozenset(found), frozenset((*wanted, *known))
    lacking = [name for name in wanted if name not in there]
    extra = [name for name in found if name not in read]
    if lacking:
        also = f"; it also has {quoted(extra)}, which no training row has" if extra else ""
        raise DataError(
            f"the table lacks {plural(len(lacking), 'column')} of the training rows: "
            f"{quoted(lacking)}{also}"
        )
    if extra:
        raise DataError(
            f"the table has {plural(len(extra), 'column')} that no training row has: "
            f"{quoted(extra)}; leave them out"
        )


# ---------------------------------------- files and their chunks


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
    how_to_ignore: ClassVar[str] = f"leave it out with {arg('ignore=')}"
    how_to_use: ClassVar[str] = f"name its kind with {arg('column_kinds=')}"

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
        return distinct(self.cells(name))

    def numbers(self, names: Sequence[str]) -> NDArray[np.float32]:
        """Return (n, D) float32 of some columns, NaN where a value is missing."""
        found = np.empty((len(self), len(names)), dtype=np.float32)
        for position, name in enumerate(names):
            found[:, position] = self.number_column(name)
        return found

    def floats(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return (n,) numbers of one column, and which are missing, as ``parse_numbers`` does.

        A format that stores numbers overrides this.
        """
        return parse_numbers(self.cells(name))

    def number_column(self, name: str) -> NDArray[np.float32]:
        """Return (n,) float32 of one column, NaN where a value is missing."""
        values, missing = self.floats(name)
        with np.errstate(over="ignore"):  # values beyond float32 are refused below
            narrow = values.astype(np.float32)
        finite = np.isfinite(narrow)
        if np.count_nonzero(finite) + np.count_nonzero(missing) < len(narrow):
            row = int(np.argmin(finite | missing))
            where, cell = self.where(row, name), self.cells(name)[row]
            if np.isfinite(values[row]):
                raise DataError(
                    f"{where}: {shown(cell)} does not fit into float32, whose largest value is "
                    f"{LARGEST:.1e}; scale the column"
                )
            raise DataError(f"{where}: {shown(cell)} is not a finite number; {self.remedy}")
        return narrow

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
        """Return n texts, empty where one is missing; numbers are written out."""
        cells = self.cells(name)
        for row, cell in enumerate(cells):
            if isinstance(cell, (list, dict, bytes, bool)):
                raise self._no_text(row, name)
        return [cell if isinstance(cell, str) else as_string(cell) for cell in cells]

    def _no_text(self, row: int, name: str) -> DataError:
        cell = self.cells(name)[row]
        return DataError(
            f"{self.where(row, name)}: {shown(cell)} is not text; name a column of texts"
        )


def distinct(cells: Sequence[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct cells as they first occur, and which of them stands at each place."""
    numbers = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}
    return list(numbers), np.fromiter(map(numbers.__getitem__, cells), np.int64, len(cells))


def first_rows(codes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the row at which each of ``count`` distinct cells occurs first."""
    found = np.zeros(count, dtype=np.int64)
    found[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the last one written is the first row
    return found


def joined_lines(parts: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return the lines of rows that came in parts, as a range where they are one."""
    first, last = parts[0][0], parts[-1][-1]
    if last - first + 1 == sum(map(len, parts)):
        return range(first, last + 1)
    return array("q", chain.from_iterable(parts))


class TablePart(NamedTuple):
    """Some consecutive rows of a table.

    Attributes:
        before: how many rows come before.
        rows: how many there are; None for all that follow, where only reading would tell.
        span: where they are in a CSV file.
    """

    before: int
    rows: int | None
    span: Any = None


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
    within: TablePart = TablePart(0, None)  # which rows of the file are the table

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

    def parts(self, rows: int) -> list[TablePart]:
        """Return the table as parts of so many rows each, but for the last one.

        Another process can read a part alone, with the same line numbers in errors. What can only
        be read from its beginning to its end is one part.
        """
        del rows
        return [TablePart(0, None)]

    def part(self, part: TablePart) -> TableFile:
        found = copy(self)
        found.within, found.num_rows = part, part.rows
        return found

    def check_columns(self, names: Iterable[str]) -> None:
        """Refuse a name that is not a column of the file."""
        known = frozenset(self.columns)
        for name in names:
            if name not in known:
                raise DataError(f"{self.path}: {unknown_name('column', name, self.columns)}")

    def check_inputs(self, names: Iterable[str]) -> None:
        """Refuse a file that lacks columns which a model reads; all of them are named."""
        known = frozenset(self.columns)
        lacking = [name for name in names if name not in known]
        if lacking:
            what = "columns" if len(lacking) > 1 else "column"
            raise DataError(
                f"{self.path} lacks the {what} {quoted(lacking, most=10)}, which the model reads; "
                f"it has {quoted(self.columns, most=10)}"
            )

    def no_rows(self) -> DataError:
        return DataError(f"{self.path} has a header but no rows")


# ---------------------------------------- columns parsed by their kinds


class ColumnWarning(DataWarning):
    """A column is not used, or read in a way that you may not expect."""


@dataclass
class TypedColumns:
    """What was found in some columns.

    Attributes:
        kinds: the kind of every column, in order.
        columns: the parsed columns by name, of those that may be used.
        skipped: the columns that should not be used, with the reason.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def used(self) -> list[str]:
        return [name for name in self.kinds if name not in self.skipped]

    @property
    def numbers(self) -> list[str] | None:
        """The number columns, constant and empty ones too, where no other kind is used."""
        if any(self.kinds[name] != "number" for name in self.used):
            return None
        return [name for name, kind in self.kinds.items() if kind == "number"]

    def table(self, order: Sequence[str] = (), ignored: Sequence[str] = ()) -> Table:
        columns = {name: self.columns[name] for name in self.used}
        return Table(columns, self.kinds, {**dict.fromkeys(ignored, ""), **self.skipped}, order)


def type_columns(
    chunk: TableChunk,
    names: Sequence[str],
    given: Mapping[str, str],
    rows: NDArray[np.int64] | None = None,
    *,
    chosen: bool = False,
) -> TypedColumns:
    """Find the kinds of columns, and parse them.

    Args:
        chunk: all rows.
        names: the columns.
        given: the kinds of some columns, by name.
        rows: the training rows, on which kinds are found; None for all.
        chosen: whether the user named the columns; then all of them are used.
    """
    found = TypedColumns()
    every = np.arange(len(chunk)) if rows is None else rows
    for name in names:
        kind = given.get(name) or chunk.declared_kind(name)
        values: NDArray[Any] | None = None
        if kind is not None:
            if base_kind(check_kind(name, kind)) == "date":
                kind = dates_of(name, kind, chunk.cells(name), every)
            one = FoundKind(kind)
        else:
            with suppress(DataError):
                values = chunk.number_column(name)
            if values is None or ID_NAME.search(name):
                one = find_kind_on(chunk, name, every)
            else:
                known = values[every]
                known = known[~np.isnan(known)]
                constant = len(known) == len(every) and bool(np.all(known == known[:1]))
                skip = NO_VALUE if not len(known) else ONE_VALUE if constant else ""
                one = FoundKind("number", skip)
        found.kinds[name] = one.kind
        if one.skip and not chosen:
            found.skipped[name] = one.skip
        elif one.also:
            warn(
                f"column {name!r} could be dates as {date_format(one.kind)} or as {one.also}; the "
                f"first is used unless you name one: date:{one.also}"
            )
        if values is None and (one.kind == "number" or name not in found.skipped):
            values = chunk.column(name, one.kind)  # raises on cells that are not of the kind
        if values is not None:
            found.columns[name] = values
    if not (found.used or found.numbers):
        reasons = ", ".join(f"{name!r} {why}" for name, why in list(found.skipped.items())[:10])
        raise DataError(f"no column can be used: {reasons}; to use one, {chunk.how_to_use}")
    for name in [name for name, reason in found.skipped.items() if reason == LIKE_AN_ID]:
        if name in (found.numbers or ()):
            warn(
                f"column {name!r} looks like an id, and is used as a number; if it is one, "
                f"{chunk.how_to_ignore}"
            )
        else:
            warn(
                f"column {name!r} looks like an id, since every value is different, and is not "
                f"used; {chunk.how_to_ignore}, or {chunk.how_to_use} to use it"
            )
    return found


def find_kind_on(chunk: TableChunk, name: str, rows: NDArray[np.int64]) -> FoundKind:
    """Return the kind of a column, by its cells of the training rows."""
    try:
        values, codes = chunk.distinct(name)
    except TypeError:
        return find_kind(name, chunk.cells(name))  # raises on lists
    counts = np.bincount(codes[rows], minlength=len(values)).tolist()
    known = {value: count for value, count in zip(values, counts, strict=True) if count}
    return kind_of(name, without_missing(Counter(known)), len(rows))


def dates_of(name: str, kind: str, cells: Sequence[Any], rows: NDArray[np.int64]) -> str:
    """Return the kind of a column of dates, with their format or century that the user left open.

    Args:
        name: of the column.
        kind: what the user said: ``date``, or with a format.
        cells: all of them.
        rows: the training rows.
    """
    counts = count_values(name, [cells[row] for row in rows])
    values = [one for one in counts if not is_mark(one)]
    if kind != "date":
        return f"date:{with_century(date_format(kind), values)}"
    forms = find_formats(values)
    if not forms:
        raise DataError(
            f"column {name!r}: no known format fits its dates; name theirs, such as date:%d.%m.%Y"
        )
    return f"date:{forms[0]}"


def warn(message: str) -> None:
    """Point something out to the user."""
    warnings.warn(message, ColumnWarning, stacklevel=2)


# ---------------------------------------- frames of pandas and polars


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
        return "category" if CATEGORY.match(str(self.columns[name].dtype).lower()) else None

    def floats(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return (n,) numbers of one column, and which are missing."""
        series = self.columns[name]
        if not NUMERIC.match(str(series.dtype).lower()):
            return super().floats(name)
        try:
            values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        except TypeError:  # polars takes neither argument
            values = series.to_numpy().astype(np.float64)
        return values, np.isnan(values)


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
