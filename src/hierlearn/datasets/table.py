"""Table: the inputs of rows whose columns are numbers, categories, texts, dates and booleans.

It takes the place of a Dataset's inputs: one array per column, each of its own kind.

    number, boolean  (N,) float32, NaN where a value is missing; booleans are 0 and 1
    category, text   (N,) strings, empty where a value is missing
    date             (N,) datetime64[s], NaT where a value is missing
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.datasets.cells import as_float32
from hierlearn.datasets.column_kinds import KINDS, base_kind, check_kind, date_format
from hierlearn.errors import DataError, plural, quoted
from hierlearn.hierarchy.labels import row_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

NAMED = 10  # columns of a kind that a summary names
MANY = {"category": "categories"}  # plurals that do not end in s alone


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
        found: NDArray[np.bool_]
        if column.dtype.kind == "O":
            found = column == ""
        else:
            found = np.isnat(column) if column.dtype.kind == "M" else np.isnan(column)
        return found

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
