"""Annotations: the labels, splits and ids of a table, collected chunk by chunk.

Labels stand in one column, several joined by ``label_sep`` (``animal/dog;plant``), or in one column
per level (``kingdom,family,species``), empty below the last one known. A row may have no label.
Or they stand in another file and are joined by the id of each row; a row without an entry there,
and one whose every label was skipped or pruned away, is left out, with a warning.
"""

from __future__ import annotations

from array import array
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.label_report import class_labels
from hierlearn.errors import DataError, HierarchyError, place, quoted
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.names import is_missing, level_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.datasets.columns import Columns
    from hierlearn.datasets.table_file import TableChunk, TableFile


class Annotations:
    """Collects the labels, splits and ids of a table; equal label sets are stored once.

    Args:
        file: the table.
        columns: the roles of its columns.
    """

    def __init__(self, file: TableFile, columns: Columns) -> None:
        self.path = file.path
        self.columns = columns.with_hierarchy_read()
        self._sets: dict[tuple[str, ...], int] = {}  # each set of labels, and its code
        self._lines: list[int] = []  # where each set occurs first
        self._codes = array("q")  # the set of each row, in 8 bytes
        self._splits: dict[str, array[int]] = {}  # the rows of each split
        self._ids: list[str] = []

    def add(self, chunk: TableChunk) -> None:
        """Take in the labels, splits and ids of the next rows."""
        if self.columns.split is not None:
            self._add_splits(chunk, self.columns.split)
        if self.columns.id_column is not None:
            self._ids.extend(row_ids(chunk, self.columns.id_column))
        parsed: Iterator[tuple[str, ...]]
        if self.columns.labels_by_id is not None:
            parsed = labels_of_ids(self._ids[len(self._codes) :], self.columns.labels_by_id)
        elif self.columns.levels is not None:
            parsed = level_labels(chunk, self.columns.levels, self.columns.sep)
        else:
            parsed = joined_labels(chunk, self.columns)
        for line, labels in zip(chunk.lines, parsed, strict=True):
            code = self._sets.setdefault(labels, len(self._sets))
            if code == len(self._lines):
                self._lines.append(line)
            self._codes.append(code)

    def _add_splits(self, chunk: TableChunk, name: str) -> None:
        cells = chunk.cells(name)
        for row, (line, cell) in enumerate(
            zip(chunk.lines, cells, strict=True), start=len(self._codes)
        ):
            if is_missing(cell):
                raise DataError(
                    f"{place(self.path, line, name)}: the row has no split; write the name of "
                    f"one, such as train, valid or test"
                )
            self._splits.setdefault(str(cell), array("q")).append(row)

    def training_rows(self) -> NDArray[np.int64]:
        """Return the rows of the split "train"; without one, those of neither valid nor test."""
        if "train" in self._splits:
            return np.array(self._splits["train"], np.int64)
        held = [row for name in ("valid", "test") for row in self._splits.get(name, ())]
        return np.setdiff1d(np.arange(len(self._codes)), np.array(held, np.int64))

    def dataset(self, inputs: Any, feature_names: Sequence[str] = ()) -> Dataset:
        """Return the dataset of all rows taken in."""
        raw = [list(labels) for labels in self._sets]
        hierarchy = self.columns.hierarchy
        if not isinstance(hierarchy, Hierarchy):
            hierarchy = self._infer_hierarchy()
        codes = np.array(self._codes, np.int64)
        rows = np.bincount(codes, minlength=len(raw)).tolist()
        named, report = class_labels(
            raw,
            rows,
            hierarchy,
            unknown=self.columns.unknown,
            path=self.path,
            lines=self._lines,
        )
        if self.columns.labels_by_id is not None:
            self._check_joined(raw)
        dataset = Dataset(
            inputs=inputs,
            labels=[named[code] for code in self._codes],
            hierarchy=hierarchy,
            splits={name: np.array(rows, np.int64) for name, rows in self._splits.items()},
            name=self.path.stem,
            feature_names=tuple(feature_names),
            source=f"the table {self.path.name}",
            ids=None if self.columns.id_column is None else self._ids,
            label_report=report,
        )
        joined = self.columns.labels_by_id is not None
        lost = [not new and (joined or bool(old)) for old, new in zip(raw, named, strict=True)]
        gone = np.array(lost, dtype=bool)[codes]
        report.rows_left_out = int(gone.sum())
        report.warn(self.path)
        return dataset.keep(~gone) if report.rows_left_out else dataset

    def _check_joined(self, raw: list[list[str]]) -> None:
        """Raise where no row has an entry among the annotations."""
        known = self.columns.labels_by_id or {}
        if any(raw):
            return
        raise DataError(
            f"{self.path}: none of the ids in column {self.columns.id_column!r} is annotated: the "
            f"rows have {quoted(self._ids[:3])}, the annotations {quoted(islice(known, 3))}; join "
            f"by another column, or read the annotations by symbol"
        )

    def _infer_hierarchy(self) -> Hierarchy:
        """Build the tree of all paths that occur as labels."""
        paths = sorted({label for labels in self._sets for label in labels})
        if not paths:
            raise DataError(
                f"{self.path} has no label at all, so no hierarchy can be inferred from it; "
                f"fill in labels, or give the hierarchy"
            )
        try:
            return Hierarchy.from_paths(paths, sep=self.columns.sep)
        except HierarchyError as error:
            raise HierarchyError(f"{self.path}: {error}") from None


def row_ids(chunk: TableChunk, name: str) -> list[str]:
    """Return the id of each row of a chunk as text; raise on a row without one."""
    found = chunk.cells(name)
    for line, cell in zip(chunk.lines, found, strict=True):
        if is_missing(cell):
            raise DataError(
                f"{place(chunk.path, line, name)}: the row has no id; write one, or leave "
                f"id_column out"
            )
    return [str(cell) for cell in found]


def labels_of_ids(
    ids: Sequence[str], known: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, ...]]:
    """Yield the labels of rows by their ids; a row without an entry has none."""
    for one in ids:
        yield tuple(known.get(one, ()))


def joined_labels(chunk: TableChunk, columns: Columns) -> Iterator[tuple[str, ...]]:
    """Yield the labels of each row of a column whose cells join them, or hold lists of them.

    Blanks around a name mean nothing: ``a / b`` is ``a/b``.
    """
    name = str(columns.label)
    seen: dict[str, tuple[str, ...]] = {}  # most cells occur again and again
    for line, cell in zip(chunk.lines, chunk.cells(name), strict=True):
        if isinstance(cell, str):
            if cell not in seen:
                seen[cell] = clean_paths(cell.split(columns.label_sep), columns.sep)
            yield seen[cell]
            continue
        is_list = isinstance(cell, (list, tuple))
        parts: list[str] = []
        for one in cell if is_list else [cell]:
            if is_missing(one):
                continue
            if isinstance(one, bool) or not isinstance(one, (str, int)):
                where = place(chunk.path, line, name)
                raise DataError(
                    f"{where}: a label is text, not {one!r} ({type(one).__name__}); store the "
                    f"labels as text"
                )
            parts.append(str(one))
        yield clean_paths(parts, columns.sep)


def clean_paths(parts: Sequence[str], sep: str) -> tuple[str, ...]:
    """Strip the names of each path; leave out empty paths."""
    paths = (sep.join(name.strip() for name in part.split(sep)) for part in parts)
    return tuple(path for path in paths if path)


def level_labels(chunk: TableChunk, levels: Sequence[str], sep: str) -> Iterator[tuple[str, ...]]:
    """Yield the label of each row of a table with one column per level."""
    cells = zip(*(chunk.cells(name) for name in levels), strict=True)
    for line, row in zip(chunk.lines, cells, strict=True):
        try:
            parts = level_path(row, sep)
        except HierarchyError as error:
            raise DataError(f"{place(chunk.path, line)}: {error}") from None
        yield (sep.join(parts),) if parts else ()
