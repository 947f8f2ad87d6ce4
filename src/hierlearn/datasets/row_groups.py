"""RowGroups: the inputs of a Parquet file that does not fit into memory, a row group at a time.

They stand where a Dataset has its inputs: taking rows gives a view that reads nothing, and only
what is asked for becomes an array or a list of texts. The labels are held, since they are small:
equal label sets are one list.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.columns import name_labels
from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.parquet import arrow_numbers, arrow_texts, opened_parquet
from hierlearn.datasets.tables import (
    Table,
    check_words,
    infer_hierarchy,
    read_labels,
    read_splits,
)
from hierlearn.errors import DataError, quoted, unknown_name
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.labels import row_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

WINDOW = 1 << 26  # values that are shuffled together: 256 MiB in float32
TEXTS = 1 << 17  # texts that are


class Source:
    """A Parquet file and the columns that are read of it; remembers the last row group.

    Args:
        path: the file.
        names: the feature columns, or the one text column.
        is_text: which of the two.
    """

    def __init__(self, path: Path, names: Sequence[str], *, is_text: bool) -> None:
        self.path = path
        self.names = tuple(names)
        self.is_text = is_text
        with opened_parquet(path) as file:
            facts = file.metadata
            groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
            counts = [group.num_rows for group in groups]
            for name in self.names:
                if name not in file.schema_arrow.names:
                    known = file.schema_arrow.names
                    raise DataError(f"{path}: {unknown_name('column', name, known)}")
        self.sizes = [group.total_byte_size for group in groups]
        self.offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)  # (G + 1,)
        self._last: tuple[int, Any] = (-1, None)

    def read(self, group: int) -> Any:
        """Return the inputs of a row group: (n, D) float32 or n texts."""
        if self._last[0] == group:
            return self._last[1]
        lines = range(int(self.offsets[group]) + 1, int(self.offsets[group + 1]) + 1)
        with opened_parquet(self.path) as file:
            table = file.read_row_group(group, columns=list(self.names))
        columns = [table.column(name) for name in self.names]
        found: Any = (
            arrow_texts(columns[0], self.names[0], path=self.path, lines=lines)
            if self.is_text
            else arrow_numbers(columns, self.names, path=self.path, lines=lines)
        )
        self._last = (group, found)
        return found


class RowGroups:
    """Some rows of a Parquet file, in some order.

    Args:
        source: the file.
        window: how many rows are shuffled together in training; the next row groups are read
            when a window is done.
        rows: the row numbers; by default all rows.
    """

    def __init__(
        self, source: Source, window: int | None = None, rows: NDArray[np.int64] | None = None
    ) -> None:
        if window is None:
            window = TEXTS if source.is_text else max(1, WINDOW // len(source.names))
        if window < 1:
            raise DataError(f"the window must be at least 1 row, not {window}")
        self.source = source
        self.window = window
        self.rows = np.arange(int(source.offsets[-1])) if rows is None else rows
        self._ascends = bool(np.all(np.diff(self.rows) > 0))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D); one column of texts."""
        return len(self), len(self.source.names)

    @property
    def is_text(self) -> bool:
        """Whether these are texts rather than numbers."""
        return self.source.is_text

    def __getitem__(self, picked: Any) -> RowGroups:
        rows = self.rows[row_numbers(picked, len(self))]
        return RowGroups(self.source, self.window, rows)

    @property
    def bounds(self) -> NDArray[np.int64]:
        """(G + 1,) where the rows of each row group begin among these, which must ascend."""
        return np.searchsorted(self.rows, self.source.offsets)

    def read(self, group: int) -> Any:
        """Return the inputs of those of these rows that are in a row group."""
        begin, end = self.bounds[group : group + 2]
        inside = self.rows[begin:end] - self.source.offsets[group]
        whole = self.source.read(group)
        return [whole[row] for row in inside] if self.is_text else whole[inside]

    def parts(self) -> Iterator[Any]:
        """Yield the inputs in order, a row group at a time."""
        if not self._ascends:
            yield self.held()
            return
        for group in np.flatnonzero(np.diff(self.bounds)):
            yield self.read(int(group))

    def held(self) -> Any:
        """Return all of these inputs at once."""
        if not self._ascends:
            unique, back = np.unique(self.rows, return_inverse=True)
            found = RowGroups(self.source, self.window, unique).held()
            return [found[place] for place in back] if self.is_text else found[back]
        if self.is_text:
            return [text for part in self.parts() for text in part]
        empty = np.zeros((0, len(self.source.names)), dtype=np.float32)
        return np.concatenate([empty, *self.parts()])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy  # what is read is always new
        return np.asarray(self.held(), dtype=dtype)

    def __iter__(self) -> Iterator[Any]:
        for part in self.parts():
            yield from part


def stream_table(
    path: Path | str,
    *,
    label: str | None = None,
    levels: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    text: str | None = None,
    split: str | None = None,
    hierarchy: Hierarchy | Path | str | None = None,
    label_sep: str = ";",
    sep: str = "/",
    window: int | None = None,
) -> Dataset:
    """Open a Parquet file as ``read_table`` does, and leave its inputs in the file.

    Args:
        path: the file.
        label: the column of labels, or
        levels: the columns of labels, a column a level, top level first.
        features: the numeric feature columns; by default every other column.
        text: the column of texts, instead of features.
        split: a column that names each row's split.
        hierarchy: the taxonomy, or a file of it; by default inferred from the labels' paths.
        label_sep: what joins several labels in one cell.
        sep: what joins the names of a path.
        window: how many rows are shuffled together in training.
    """
    path = Path(path)
    check_words(label, levels, features, text, split, sep)
    if path.suffix.lower() != ".parquet":
        raise DataError(f"{path}: only Parquet files can be streamed into training; convert it")
    if isinstance(hierarchy, (str, Path)):
        hierarchy = Hierarchy.read(hierarchy, sep=sep)
    if hierarchy is not None:
        sep = hierarchy.sep
    used = [name for name in (label, split, *(levels or ())) if name is not None]
    with opened_parquet(path) as file:
        known = file.schema_arrow.names
    for name in used:
        if name not in known:
            raise DataError(f"{path}: {unknown_name('column', name, known)}")
    names = (
        [text]
        if text is not None
        else [name for name in known if name not in used]
        if features is None
        else list(features)
    )
    if not names:
        raise DataError(f"{path} has no feature column; it has {quoted(known, most=10)}")
    source = Source(path, names, is_text=text is not None)
    if not source.offsets[-1]:
        raise DataError(f"{path} has a header but no rows")
    codes: list[NDArray[np.int64]] = []
    seen: dict[tuple[str, ...], int] = {}
    first: list[int] = []  # the line where each label set was met
    splits: dict[str, list[NDArray[np.int64]]] = {}
    for table in label_tables(path, used):
        raw = read_labels(table, label, levels, label_sep, sep)
        for line, row in zip(table.lines, raw, strict=True):
            if seen.setdefault(tuple(row), len(seen)) == len(first):
                first.append(line)
        codes.append(np.array([seen[tuple(row)] for row in raw], dtype=np.int64))
        for name, rows in ({} if split is None else read_splits(table, split)).items():
            splits.setdefault(name, []).append(rows + table.lines[0] - 1)
    sets = [list(one) for one in seen]
    if hierarchy is None:
        hierarchy = infer_hierarchy(path, sets, sep)
    named = name_labels(sets, hierarchy, path=path, lines=first)
    inputs: Any = RowGroups(source, window)
    return Dataset(
        inputs=inputs,
        labels=[named[code] for code in np.concatenate(codes)],
        hierarchy=hierarchy,
        splits={name: np.concatenate(parts) for name, parts in splits.items()},
        name=path.stem,
        feature_names=() if text is not None else tuple(names),
        source=f"the table {path.name}",
    )


def label_tables(path: Path, names: Sequence[str]) -> Iterator[Table]:
    """Yield the label and split columns of a file, some rows at a time."""
    with opened_parquet(path) as file:
        begin = 1
        for batch in file.iter_batches(columns=list(names), use_threads=False):
            columns = {name: batch.column(name).to_pylist() for name in names}
            lines = range(begin, begin + batch.num_rows)
            begin += batch.num_rows
            yield Table(path, columns, lines)
