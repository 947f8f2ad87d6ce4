"""Typed columns: the columns of a file or frame, each parsed as the kind that fits its values."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.cells import is_mark
from hierlearn.datasets.column_kinds import (
    ID_NAME,
    LIKE_AN_ID,
    NO_VALUE,
    ONE_VALUE,
    FoundKind,
    base_kind,
    check_kind,
    count_values,
    date_format,
    find_kind,
    kind_of,
    without_missing,
)
from hierlearn.datasets.dates import find_formats, with_century
from hierlearn.datasets.table import Table
from hierlearn.errors import DataError, DataWarning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.datasets.table_file import TableChunk


class ColumnWarning(DataWarning):
    """A column is not used, or read in a way that you may not expect."""


@dataclass
class TypedColumns:
    """What was found in some columns.

    Attributes:
        names: all of them, in order.
        columns: the parsed columns by name, of those that may be used.
        kinds: the kind of every column.
        skipped: the columns that should not be used, with the reason.
        ignored: the columns that were left out before, with the reason.
    """

    names: tuple[str, ...]
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)

    @property
    def used(self) -> list[str]:
        """The columns that are used."""
        return [name for name in self.names if name not in self.skipped]

    @property
    def numbers(self) -> list[str] | None:
        """The number columns, constant and empty ones too, where no other kind is used."""
        if any(self.kinds[name] != "number" for name in self.used):
            return None
        return [name for name in self.names if self.kinds[name] == "number"]

    @property
    def text(self) -> str | None:
        """The one column that is used, if it is of texts."""
        used = self.used
        return used[0] if len(used) == 1 and self.kinds[used[0]] == "text" else None

    def table(self, order: Sequence[str] = ()) -> Table:
        """Return the columns that are used, as a table."""
        columns = {name: self.columns[name] for name in self.used}
        return Table(columns, self.kinds, {**self.ignored, **self.skipped}, order)


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
    found = TypedColumns(tuple(names))
    every = np.arange(len(chunk)) if rows is None else rows
    for name in names:
        kind = given.get(name) or chunk.declared_kind(name)
        if kind is not None:
            kind = with_format(chunk, name, check_kind(name, kind), every)
            found.kinds[name], found.columns[name] = kind, chunk.column(name, kind)
            continue
        one, values = type_column(chunk, name, every)
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
    warn_of_ids(found, chunk)
    return found


def type_column(
    chunk: TableChunk, name: str, rows: NDArray[np.int64]
) -> tuple[FoundKind, NDArray[Any] | None]:
    """Return the kind of a column, and its numbers where it holds nothing else."""
    try:
        values = chunk.number_column(name)
    except DataError:
        return find_kind_on(chunk, name, rows), None
    if ID_NAME.search(name):
        return find_kind_on(chunk, name, rows), values
    known = values[rows]
    known = known[~np.isnan(known)]
    if not len(known):
        return FoundKind("number", NO_VALUE), values
    constant = len(known) == len(rows) and bool(np.all(known == known[0]))
    return FoundKind("number", ONE_VALUE if constant else ""), values


def find_kind_on(chunk: TableChunk, name: str, rows: NDArray[np.int64]) -> FoundKind:
    """Return the kind of a column, by its cells of the training rows."""
    try:
        values, codes = chunk.distinct(name)
    except TypeError:
        return find_kind(name, chunk.cells(name))  # raises on lists
    counts = np.bincount(codes[rows], minlength=len(values)).tolist()
    known = dict(zip(values, counts, strict=True))
    if min(counts) == 0:
        known = {value: count for value, count in known.items() if count}
    return kind_of(name, without_missing(Counter(known)), len(rows))


def with_format(chunk: TableChunk, name: str, kind: str, rows: NDArray[np.int64]) -> str:
    """Return a kind, with the format of its dates, or their century, where the user gave none."""
    if base_kind(kind) != "date":
        return kind
    cells = chunk.cells(name)
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


def warn_of_ids(found: TypedColumns, chunk: TableChunk) -> None:
    """Point out columns that look like ids."""
    numbers = frozenset(found.numbers or ())
    for name, reason in found.skipped.items():
        if reason != LIKE_AN_ID:
            continue
        if name in numbers:
            warn(
                f"column {name!r} looks like an id, and is used as a number; if it is one, "
                f"{chunk.how_to_ignore}"
            )
        else:
            warn(
                f"column {name!r} looks like an id, since every value is different, and is not "
                f"used; {chunk.how_to_ignore}, or {chunk.how_to_use} to use it"
            )


def warn(message: str) -> None:
    """Point something out to the user."""
    warnings.warn(message, ColumnWarning, stacklevel=2)
