"""Tables of any size, some rows at a time.

``TableStream`` yields the inputs of a table for predicting: only the columns that a model reads
become numbers or texts. ``RowGroups`` take the place of a Dataset's inputs in training: indexing
gives a view that reads nothing. ``Vectors`` are those that another model made of the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.labels import row_ids
from hierlearn.datasets.tables import open_table
from hierlearn.errors import DataError, arg, plural
from hierlearn.files.reading import read_ahead
from hierlearn.files.tensors import ENDINGS, read_matrix
from hierlearn.hierarchy.labels import row_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Kind
    from hierlearn.datasets.images import Images
    from hierlearn.datasets.tables.arrow import ParquetFile
    from hierlearn.datasets.tables.table import Table, TableChunk, TableFile, TablePart


CELLS = 1 << 18  # cells of a file that are held at a time
EVEN = 4096  # rows of which a chunk has a multiple, or it has a power of 2
WINDOW = 1 << 26  # values that are shuffled together: 256 MiB in float32
TEXTS = 1 << 17  # texts that are shuffled together


@dataclass(frozen=True)
class Chunk:
    """Some consecutive rows.

    Attributes:
        inputs: (n, D) float32 with NaN where a value is missing, or n texts, or a ``Table``,
            or ``Images``.
        lines: the line of each row in the file, or its number from 1 in Parquet.
        ids: the id of each row; None where no column has them.
        kept: columns of the file as they are, lists or Arrow arrays, by name.
    """

    inputs: NDArray[np.float32] | list[str] | Table | Images
    lines: Sequence[int]
    ids: Sequence[str] | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)

    def take(self, rows: slice) -> Chunk:
        """Return some consecutive ones of the rows."""
        ids = None if self.ids is None else self.ids[rows]
        kept = {name: cells[rows] for name, cells in self.kept.items()}
        return Chunk(self.inputs[rows], self.lines[rows], ids, kept)


class TableStream:
    """A table that can be iterated over again and again, one chunk at a time.

    Args:
        path: the file; its ending tells the format. Parquet may be many files, see ``open_table``.
        features: the feature columns, in the order in which the model reads them, those of a mixed
            table with their kinds; or
        text: the column of texts.
        id_column: a column that names each row.
        keep: columns that every chunk has as they are.
        delimiter: what separates the cells of a CSV or TSV file; by default found.
        cells: how many cells a chunk may hold.
        embeddings: instead of columns, the vectors of the rows: a file, or a column of lists.

    Attributes:
        ignored: the columns that are not read.
        rows: how many rows there are, None where only reading would tell.
        before: how many rows of the file come before them.

    Raises:
        DataError: naming the columns that the file lacks.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        features: Sequence[str] | Mapping[str, str] = (),
        text: str | None = None,
        id_column: str | None = None,
        keep: Sequence[str] = (),
        delimiter: str | None = None,
        cells: int = CELLS,
        embeddings: Path | str | None = None,
    ) -> None:
        if embeddings is None and bool(features) == (text is not None):
            raise DataError(
                f"name either feature columns ({arg('features=')}) or a text column "
                f"({arg('text=')})"
            )
        self.text = text
        self.kinds = dict(features) if isinstance(features, Mapping) else None
        self.id_column = id_column
        self.names = (text,) if text is not None else tuple(features)
        self.keep = tuple(keep)
        self.size = even_size(cells // max(1, len(self.names) + len(self.keep)))
        self.file = open_table(path, delimiter)
        self.path = self.file.path
        self.before = 0
        self.rows = self.file.num_rows
        self.file.check_inputs(self.names)
        self.file.check_columns(self.keep)
        if id_column is not None:
            self.file.check_columns([id_column])
            if id_column in self.names:
                raise DataError(
                    f"column {id_column!r} is named twice, as an input and as "
                    f"{arg('id_column')}; give each column one role"
                )
        self.vectors = None if embeddings is None else Vectors(embeddings, self.file)
        own = self.names if self.vectors is None else self.vectors.columns
        ids = () if id_column is None else (id_column,)
        self._read = tuple(dict.fromkeys((*own, *ids, *self.keep))) or self.file.columns[:1]
        read = frozenset(self._read)
        self.ignored = tuple(name for name in self.file.columns if name not in read)

    def parts(self, rows: int) -> list[TablePart]:
        """Return the table as parts of so many rows each, but for the last one."""
        return self.file.parts(rows)

    def part(self, part: TablePart) -> TableStream:
        found = copy(self)
        found.vectors, found.file = copy(self.vectors), self.file.part(part)
        found.before, found.rows = part.before, part.rows
        return found

    def __iter__(self) -> Iterator[Chunk]:
        begin = self.before
        for rows in self.file.chunks(self._read, self.size):
            inputs: NDArray[np.float32] | list[str] | Table
            if self.vectors is not None:
                inputs = self.vectors.of(rows, begin)
            elif self.text is not None:
                inputs = rows.texts(self.text)
            elif self.kinds is not None:
                inputs = rows.table(self.kinds)
            else:
                inputs = rows.numbers(self.names)
            begin += len(rows)
            ids = None if self.id_column is None else row_ids(rows, self.id_column)
            yield Chunk(inputs, rows.lines, ids, {name: rows.columns[name] for name in self.keep})
        if begin == self.before:
            raise self.file.no_rows()
        if self.vectors is not None and (not self.before and self.rows is None):
            self.vectors.check_count(begin)


def even_size(rows: int) -> int:
    """Return at most so many rows, at least 1, in which batches of a power of 2 come out even."""
    return rows - rows % EVEN if rows >= EVEN else 1 << (max(1, rows).bit_length() - 1)


# ---------------------------------------- rows that stay in their file


class RowGroups:
    """Some rows of a Parquet file, in some order; indexing gives a view that reads nothing.

    The inputs of the last row group that was read are held, for this and all its views.

    Args:
        file: the table.
        names: the feature columns, or the one text column.
        kind: "numbers" or "texts".
        window: how many rows are shuffled together in training; the next groups are read when a
            window is done.
    """

    def __init__(
        self, file: ParquetFile, names: Sequence[str], kind: Kind, window: int | None = None
    ) -> None:
        file.check_columns(names)
        if window is None:
            window = TEXTS if kind == "texts" else max(1, WINDOW // len(names))
        if window < 1:
            raise DataError(f"the window must be at least 1 row, not {window}")
        self.file = file
        self.names = tuple(names)
        self.kind = kind
        self.window = window
        self.rows = np.arange(file.num_rows)  # their numbers in the file
        self._held: dict[int, Any] = {}  # shared by all views

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"RowGroups({len(self):,} rows of {self.file.path}, {self.kind})"

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D); one column of texts."""
        return len(self), len(self.names)

    def __getitem__(self, picked: Any) -> RowGroups:
        found = copy(self)
        found.rows = self.rows[row_numbers(picked, len(self))]
        return found

    @property
    def _ascends(self) -> bool:
        return bool(np.all(np.diff(self.rows) > 0))

    @property
    def bounds(self) -> NDArray[np.int64]:
        """(G + 1,) where the rows of each group begin among these, which must ascend."""
        return np.searchsorted(self.rows, self.file.group_offsets)

    def read(self, group: int) -> Any:
        """Return the inputs of those of these rows that are in a group."""
        whole = self._held.get(group)  # threads may read other groups meanwhile
        if whole is None:
            rows = self.file.read_group(group, self.names)
            whole = rows.numbers(self.names) if self.kind == "numbers" else rows.texts(*self.names)
            self._held.clear()
            self._held[group] = whole
        begin, end = self.bounds[group : group + 2]
        inside = self.rows[begin:end] - self.file.group_offsets[group]
        return [whole[row] for row in inside] if self.kind == "texts" else whole[inside]

    def parts(self) -> Iterator[Any]:
        """Yield the inputs in order, one group at a time."""
        if not self._ascends:
            yield self.load()
            return
        yield from read_ahead(self.read, np.flatnonzero(np.diff(self.bounds)).tolist())

    def load(self) -> Any:
        """Return all of these inputs at once."""
        if not self._ascends:
            unique, back = np.unique(self.rows, return_inverse=True)
            view = copy(self)
            view.rows = unique
            found = view.load()
            return [found[place] for place in back] if self.kind == "texts" else found[back]
        if self.kind == "texts":
            return [text for part in self.parts() for text in part]
        empty = np.zeros((0, len(self.names)), dtype=np.float32)
        return np.concatenate([empty, *self.parts()])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy  # the array is always new
        return np.asarray(self.load(), dtype=dtype)

    def __iter__(self) -> Iterator[Any]:
        return (row for part in self.parts() for row in part)


# ---------------------------------------- vectors that another model made


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
        if self.rows is None:
            table.check_columns([str(named)])
            self.columns = (str(named),)
        elif table.num_rows is not None:
            self.check_count(table.num_rows)

    def check_count(self, rows: int, *, at_least: bool = False) -> None:
        """Raise on another number of rows than there are vectors.

        Args:
            rows: how many there are.
            at_least: whether more rows may follow.
        """
        if self.rows is None or rows == len(self.rows) or (at_least and rows < len(self.rows)):
            return
        raise DataError(
            f"{self.named} has {plural(len(self.rows), 'vector')}, but {self.table.path} has "
            f"{'more rows' if at_least else plural(rows, 'row')}; write one vector per row, in the "
            f"same order"
        )

    def of(self, chunk: TableChunk, begin: int) -> NDArray[np.float32]:
        """Return the (n, D) vectors of rows that so many come before."""
        end = begin + len(chunk)
        if self.rows is not None:
            self.check_count(end, at_least=True)
            return self.rows[begin:end]
        found, name = list_column(chunk, str(self.named)), str(self.named)
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
    for row, cell in enumerate(chunk.cells(name)):
        values = cell
        if isinstance(cell, str):
            with suppress(ValueError, RecursionError):
                values = json.loads(cell)
        if not isinstance(values, list) or not values:
            raise DataError(
                f"{chunk.where(row, name)}: {str(cell)[:60]!r} is no list of numbers; name a "
                f"column of vectors"
            )
        if rows and len(values) != len(rows[0]):
            raise DataError(
                f"{chunk.where(row, name)}: a vector of {len(values)} numbers, after ones of "
                f"{len(rows[0])}; all have the same length"
            )
        try:
            rows.append(np.array(values, dtype=np.float32))
        except (TypeError, ValueError, OverflowError):
            raise DataError(
                f"{chunk.where(row, name)}: the list holds something else than numbers"
            ) from None
    return np.stack(rows)


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
