"""RowGroups: the inputs of a table that does not fit into memory, read by groups of rows.

They take the place of a Dataset's inputs: indexing gives a view that reads nothing, and only
what is asked for becomes an array or a list of texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError
from hierlearn.files.ahead import read_ahead
from hierlearn.hierarchy.labels import row_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Kind
    from hierlearn.datasets.table_file import PartitionedTableFile

WINDOW = 1 << 26  # values that are shuffled together: 256 MiB in float32
TEXTS = 1 << 17  # texts that are shuffled together


class Source:
    """A file and the columns that are read from it; caches the last group of rows.

    Args:
        file: the table, such as a Parquet file.
        names: the feature columns, or the one text column.
        kind: "numbers" or "texts".
    """

    def __init__(self, file: PartitionedTableFile, names: Sequence[str], kind: Kind) -> None:
        file.check_columns(names)
        self.file = file
        self.names = tuple(names)
        self.kind = kind
        self.sizes = file.group_bytes
        self.offsets = file.group_offsets  # (G + 1,)
        self._last: tuple[int, Any] = (-1, None)

    def read(self, group: int) -> Any:
        """Return the inputs of a group: (n, D) float32 or n texts."""
        number, found = self._last  # threads may read other groups meanwhile
        if number != group:
            rows = self.file.read_group(group, self.names)
            found = rows.numbers(self.names) if self.kind == "numbers" else rows.texts(*self.names)
            self._last = (group, found)
        return found


class RowGroups:
    """Some rows of a file, in some order.

    Args:
        source: the file.
        window: how many rows are shuffled together in training; the next groups are read when a
            window is done.
        rows: the row numbers; by default all rows.
    """

    def __init__(
        self, source: Source, window: int | None = None, rows: NDArray[np.int64] | None = None
    ) -> None:
        if window is None:
            window = TEXTS if source.kind == "texts" else max(1, WINDOW // len(source.names))
        if window < 1:
            raise DataError(f"the window must be at least 1 row, not {window}")
        self.source = source
        self.window = window
        self.rows = np.arange(int(source.offsets[-1])) if rows is None else rows
        self._ascends = bool(np.all(np.diff(self.rows) > 0))

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"RowGroups({len(self):,} rows of {self.source.file.path}, {self.kind})"

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D); one column of texts."""
        return len(self), len(self.source.names)

    @property
    def kind(self) -> Kind:
        """Either "numbers" or "texts"."""
        return self.source.kind

    def __getitem__(self, picked: Any) -> RowGroups:
        rows = self.rows[row_numbers(picked, len(self))]
        return RowGroups(self.source, self.window, rows)

    @property
    def bounds(self) -> NDArray[np.int64]:
        """(G + 1,) where the rows of each group begin among these, which must ascend."""
        return np.searchsorted(self.rows, self.source.offsets)

    def read(self, group: int) -> Any:
        """Return the inputs of those of these rows that are in a group."""
        begin, end = self.bounds[group : group + 2]
        inside = self.rows[begin:end] - self.source.offsets[group]
        whole = self.source.read(group)
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
            found = RowGroups(self.source, self.window, unique).load()
            return [found[place] for place in back] if self.kind == "texts" else found[back]
        if self.kind == "texts":
            return [text for part in self.parts() for text in part]
        empty = np.zeros((0, len(self.source.names)), dtype=np.float32)
        return np.concatenate([empty, *self.parts()])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy  # the array is always new
        return np.asarray(self.load(), dtype=dtype)

    def __iter__(self) -> Iterator[Any]:
        for part in self.parts():
            yield from part
