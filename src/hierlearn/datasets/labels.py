"""The labels, splits, ids and groups of a table, and what became of labels that are no class.

Labels stand in one column, several joined by ``label_sep`` (``animal/dog;plant``), or in one column
per level (``kingdom,family,species``), empty below the last one known. A row may have no label.
Or they stand in another file and are joined by the id of each row; a row without an entry there,
and one whose every label was skipped or pruned away, is left out, with a warning.

    replaced   an old id stands for another class (``alt_id``, ``replaced_by``)
    pruned     a class that was removed counts for its nearest ancestors
    skipped    a label that the hierarchy does not have, left out with ``unknown="skip"``
    unseen     one that counts for the nearest class above it, with ``unknown="nearest"``
"""

from __future__ import annotations

import csv
import warnings
from array import array
from contextlib import suppress
from dataclasses import dataclass, field, replace
from glob import has_magic
from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.describe import class_counts, listed, near_duplicates, one_name_cells
from hierlearn.datasets.tables.arrow import FileLines
from hierlearn.datasets.tables.table import distinct, first_rows, joined_lines
from hierlearn.errors import (
    DataError,
    DataWarning,
    HierarchyError,
    LabelError,
    arg,
    place,
    plural,
    quoted,
    shown,
)
from hierlearn.files.reading import is_compressed
from hierlearn.files.writing import atomic_write
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.names import (
    has_gap,
    is_missing,
    level_path,
    warn_of_gaps,
    warn_of_other_sep,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hierlearn.datasets.tables.read import Columns
    from hierlearn.datasets.tables.table import TableChunk
    from hierlearn.files.locations import Location


SPLITS = ("train", "valid", "test")
ALIASES = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "dev", "development"), "valid"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}
MOST_SPLITS = 20  # a column with more values is something else
NESTED = (dict, list, tuple, set, frozenset, bytes, bytearray, memoryview, np.ndarray)
LISTS = (list, tuple)
SEPS = (" > ", " | ", "::", " >> ", " -> ")  # what joins names of levels that hold a slash
Unknown = Literal["error", "skip", "nearest"]
HEADER = ("label", "rows", "occurrences", "first_line", "reason")


class Annotations:
    """Collects labels, splits, ids and groups of a table; equal cells of labels are stored once.

    Args:
        path: the table, for errors.
        columns: the roles of its columns.
    """

    def __init__(self, path: Location, columns: Columns) -> None:
        self.path = path
        if isinstance(columns.hierarchy, (str, PurePath)):
            hierarchy = Hierarchy.read(columns.hierarchy, sep=columns.path_sep)
            columns = replace(columns, hierarchy=hierarchy)
        self.columns = columns
        self._keys: dict[Any, int] = {}  # each cell of labels, or cells of levels, and its code
        self._parsed: list[tuple[str, ...]] = []  # its labels, or the names of its levels
        self._lines: list[int] = []  # where it occurs first
        self._codes = array("i")  # the code of each row, in 4 bytes
        self._splits: dict[str, array[int]] = {}  # the rows of each split
        self._ids: list[str] = []
        self._groups: list[str] = []
        self._line_of: list[Sequence[int]] = []  # the line of each row, part by part

    def add(self, chunk: TableChunk) -> None:
        """Take in the labels, splits and ids of the next rows."""
        if (name := self.columns.split) is not None:
            what = "split; write the name of one, such as train, valid or test"
            cells, codes = check_missing(chunk, name, what)
            order = np.argsort(codes, kind="stable") + len(self._codes)
            ends = np.cumsum(np.bincount(codes, minlength=len(cells)))
            for cell, rows in zip(cells, np.split(order, ends[:-1]), strict=True):
                own = self._splits.setdefault(str(cell), array("q"))
                own.frombytes(rows.astype(np.int64).tobytes())
            if len(self._splits) > MOST_SPLITS:
                check_splits(self._splits, self.path, name)
        if self.columns.id_column is not None:
            self._ids.extend(row_ids(chunk, self.columns.id_column))
        if self.columns.group is not None:
            self._groups.extend(row_ids(chunk, self.columns.group, "group"))
        self._line_of.append(chunk.lines)
        if self.columns.labels_by_id is not None:
            known = self.columns.labels_by_id
            keys, codes = distinct([tuple(known.get(one, ())) for one in self._ids[-len(chunk) :]])
        else:
            keys, codes = label_keys(chunk, self.columns)
        for key, row in zip(keys, first_rows(codes, len(keys)).tolist(), strict=True):
            if key not in self._keys:
                self._keys[key] = len(self._keys)
                self._parsed.append(parse_key(key, self.columns, chunk, row))
                self._lines.append(chunk.lines[row])
        numbers = np.array([self._keys[key] for key in keys], dtype=np.int32)
        self._codes.frombytes(numbers[codes].tobytes())

    def training_rows(self) -> NDArray[np.int64]:
        """Return the rows of the split "train"; without one, those of neither valid nor test."""
        if "train" in self._splits:
            return np.array(self._splits["train"], np.int64)
        kept = np.ones(len(self._codes), dtype=bool)
        for name in ("valid", "test"):
            kept[np.array(self._splits.get(name, ()), np.int64)] = False
        return np.flatnonzero(kept)

    def dataset(
        self, inputs: Any, feature_names: Sequence[str] = (), *, drop_empty: bool = False
    ) -> Dataset:
        """Return the dataset of all rows taken in.

        Args:
            inputs: of all rows.
            feature_names: of the inputs.
            drop_empty: whether to leave out rows without any label that is left, as is done with
                labels that are joined by ids.
        """
        if self.columns.split is not None:
            check_splits(self._splits, self.path, self.columns.split)
        columns, given = self.columns, self.columns.hierarchy
        sep = given.sep if isinstance(given, Hierarchy) else self._choose_sep()
        sets = self._parsed
        if columns.levels is not None:
            sets = [(sep.join(names),) if names else () for names in self._parsed]
        if isinstance(given, Hierarchy):
            hierarchy = given
        else:  # the tree of all paths that occur as labels
            paths = sorted({label for labels in sets for label in labels})
            if not paths:
                raise DataError(
                    f"{self.path} has no label at all, so no hierarchy can be inferred from it; "
                    f"fill in labels, or give the hierarchy"
                )
            if columns.levels is None:
                warn_of_other_sep(paths, sep)
            try:
                hierarchy = Hierarchy.from_paths(paths, sep=sep)
            except HierarchyError as error:
                raise HierarchyError(f"{self.path}: {error.message}") from None
        codes = np.array(self._codes, np.int64)
        rows = np.bincount(codes, minlength=len(sets))
        if columns.levels is not None:
            gaps = [code for key, code in self._keys.items() if has_gap(map(stripped, key))]
            if gaps:
                first = f"line {self._lines[gaps[0]]}"
                warn_of_gaps(self.path, int(rows[gaps].sum()), first, sets[gaps[0]][0])
        for key, labels, line in zip(self._keys, sets, self._lines, strict=True):
            whole = " ".join(key.split()) if len(labels) > 1 and isinstance(key, str) else None
            if whole in hierarchy:
                raise LabelError(
                    f"{place(self.path, line, columns.label)}: {whole!r} is a class, but the cell "
                    f"is split at {columns.label_sep!r}; set {arg('label_sep', None)} if every "
                    f"cell holds one label"
                )
        named, report = class_labels(
            sets,
            rows.tolist(),
            hierarchy,
            unknown=columns.unknown,
            path=self.path,
            lines=self._lines,
        )
        if hierarchy is not given:
            self._warn_of_labels(named, hierarchy)
        if columns.labels_by_id is not None and not any(self._parsed):
            raise DataError(
                f"{self.path}: none of the ids in column {columns.id_column!r} is annotated: the "
                f"rows have {quoted(self._ids[:3])}, the annotations "
                f"{quoted(islice(columns.labels_by_id, 3))}; join by another column, or read the "
                f"annotations by symbol"
            )
        plain = PurePath(str(self.path))
        stem = PurePath(plain.stem).stem if is_compressed(plain) else plain.stem
        dataset = Dataset(
            inputs=inputs,
            labels=[named[code] for code in self._codes],
            hierarchy=hierarchy,
            splits={name: np.array(rows, np.int64) for name, rows in self._splits.items()},
            name=plain.parent.name if has_magic(plain.name) else stem,  # the folder of a pattern
            feature_names=tuple(feature_names),
            source=f"the table {self.path.name}",
            ids=None if columns.id_column is None else self._ids,
            groups=None if columns.group is None else self._groups,
            lines=None if isinstance(self._line_of[0], FileLines) else joined_lines(self._line_of),
            label_report=report,
            unseen=unseen_rows(sets, codes, report),
        )
        joined = columns.labels_by_id is not None or drop_empty
        kept = columns.unknown == "nearest"
        lost = [
            not new and (not kept if old else joined) for old, new in zip(sets, named, strict=True)
        ]
        gone = np.array(lost, dtype=bool)[codes]
        report.rows_left_out = int(gone.sum())
        report.warn(self.path)
        return dataset.keep(~gone) if report.rows_left_out else dataset

    def _choose_sep(self) -> str:
        """Return what joins the names of a path: as given, or what no name of a level holds."""
        usual = self.columns.path_sep
        if self.columns.levels is None or self.columns.sep is not None:
            return usual
        names = {name for names in self._parsed for name in names}
        holding = [name for name in names if usual in name]
        if not holding:
            return usual
        chosen = next((sep for sep in SEPS if not any(sep in name for name in names)), None)
        if chosen is None:
            raise DataError(
                f"{self.path}: {min(holding)!r} holds the separator {usual!r} of paths, and other "
                f"names hold other ones; choose one with {arg('sep=')}"
            )
        warn(
            f"{self.path}: {min(holding)!r} holds a {usual!r}, so paths are joined by {chosen!r}; "
            f"choose another with {arg('sep=')}"
        )
        return chosen

    def _warn_of_labels(self, named: Sequence[Sequence[str]], hierarchy: Hierarchy) -> None:
        """Point out labels of an inferred hierarchy that look like mistakes."""
        rows = np.bincount(self._codes, minlength=len(self._keys))
        if self.columns.label_sep is not None and self.columns.levels is None:
            texts = {key: code for key, code in self._keys.items() if isinstance(key, str)}
            split = {key: self._parsed[code] for key, code in texts.items()}
            counts = {key: int(rows[code]) for key, code in texts.items()}
            cells = one_name_cells(split, counts, hierarchy.sep)
            if cells:
                line = self._lines[self._keys[cells[0]]]
                more = f" (like {plural(len(cells) - 1, 'other cell')})" if len(cells) > 1 else ""
                warn(
                    f"{place(self.path, line, self.columns.label)}: {cells[0]!r} looks like one "
                    f"name{more}, but is split at {self.columns.label_sep!r} into "
                    f"{quoted(split[cells[0]])}; set {arg('label_sep', None)} if every cell "
                    f"holds one label"
                )
        found = near_duplicates(hierarchy, class_counts(named, rows, hierarchy))
        if found:
            warn(
                f"{self.path}: {plural(len(found), 'label')} may be misspelled: "
                f"{listed(found, most=3)}; correct the table if so"
            )


def warn(message: str) -> None:
    """Point something out to the user."""
    warnings.warn(message, DataWarning, stacklevel=2)


def check_nested(chunk: TableChunk, name: str, cells: Iterable[Any]) -> None:
    """Raise where cells of a column are bytes, or hold several values: they name nothing."""
    if any(isinstance(cell, NESTED) for cell in cells):
        whole = enumerate(chunk.cells(name))
        row, cell = next((row, cell) for row, cell in whole if isinstance(cell, NESTED))
        raise DataError(
            f"{chunk.where(row, name)}: {shown(cell)} is no text ({type(cell).__name__}); "
            f"store labels, splits and ids as text, or name another column"
        )


def check_missing(chunk: TableChunk, name: str, what: str) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct cells of a column, and which each row has; raise where one is missing."""
    try:
        cells, codes = chunk.distinct(name)
    except TypeError:  # what cannot be told apart by a dictionary
        check_nested(chunk, name, chunk.cells(name))
        raise
    check_nested(chunk, name, cells)
    for number, cell in enumerate(cells):
        if is_missing(cell):
            row = int(np.argmax(codes == number))
            raise DataError(f"{chunk.where(row, name)}: the row has no {what}")
    return cells, codes


def check_splits(names: Collection[str], path: Location, column: str) -> None:
    """Raise unless the values of a column name splits."""
    for name in names:
        meant = ALIASES.get(name.strip().casefold())
        if meant is not None and name != meant and meant not in names:
            raise DataError(f"{path}, column {column!r}: write {meant!r} instead of {name!r}")
    if not set(SPLITS) & set(names) or len(names) > MOST_SPLITS:
        count = f"more than {MOST_SPLITS} values" if len(names) > MOST_SPLITS else "values"
        raise DataError(
            f"{path}: column {column!r} holds {count} such as {quoted(list(names)[:3])}, which "
            f"name no splits; a split is called train, valid or test"
        )


def row_ids(chunk: TableChunk, name: str, what: Literal["id", "group"] = "id") -> list[str]:
    """Return the id or group of each row of a chunk as text; raise on a row without one."""
    role = arg("id_column" if what == "id" else "group")
    check_missing(chunk, name, f"{what}; write one, or leave {role} out")
    return [str(cell) for cell in chunk.cells(name)]


def label_keys(chunk: TableChunk, columns: Columns) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct cells of labels, fit for a dictionary, and which each row has."""
    if columns.levels is None:
        name = str(columns.label)
        with suppress(TypeError):  # a column of lists
            return chunk.distinct(name)
        cells = chunk.cells(name)
        check_nested(chunk, name, (cell for cell in cells if not isinstance(cell, LISTS)))
        keys = [
            tuple(parse_labels(cell, columns, chunk, row)) if isinstance(cell, LISTS) else cell
            for row, cell in enumerate(cells)
        ]
        return distinct(keys)
    levels = [chunk.cells(name) for name in columns.levels]
    for name, own in zip(columns.levels, levels, strict=True):
        check_nested(chunk, name, own)
    return distinct(list(zip(*levels, strict=True)))


def parse_key(key: Any, columns: Columns, chunk: TableChunk, row: int) -> tuple[str, ...]:
    """Return the labels of a cell, or the names on the path of the cells of levels.

    Blanks around a name mean nothing: ``a / b`` is ``a/b``.
    """
    if columns.labels_by_id is not None:
        return tuple(key)
    if columns.levels is not None:
        try:
            return tuple(level_path(map(stripped, key), columns.sep))
        except HierarchyError as error:
            raise DataError(f"{place(chunk.path, chunk.lines[row])}: {error.message}") from None
    if isinstance(key, str):
        parts = [key] if columns.label_sep is None else key.split(columns.label_sep)
    else:
        parts = parse_labels(key if isinstance(key, tuple) else [key], columns, chunk, row)
    sep = columns.path_sep
    paths = (sep.join(name.strip() for name in part.split(sep)) for part in parts)
    return tuple(path for path in paths if path)


def stripped(cell: Any) -> Any:
    """Return a cell without the blanks around it."""
    return cell.strip() if isinstance(cell, str) else cell


def parse_labels(labels: Sequence[Any], columns: Columns, chunk: TableChunk, row: int) -> list[str]:
    """Return the labels of a list as texts, without missing ones."""
    parts: list[str] = []
    for one in labels:
        if is_missing(one):
            continue
        if isinstance(one, bool) or not isinstance(one, (str, int)):
            raise DataError(
                f"{chunk.where(row, str(columns.label))}: a label is text, not {shown(one)} "
                f"({type(one).__name__}); store the labels as text"
            )
        parts.append(str(one))
    return parts


# ---------------------------------------- labels that are no class


class LabelWarning(UserWarning):
    """Labels were replaced, mapped up or left out."""


@dataclass
class Found:
    """Where a label occurs.

    Attributes:
        line: of the first row that has it.
        rows: how many rows have it.
        occurrences: how often it occurs.
        reason: why it is no class.
        classes: the classes that it stands for.
    """

    line: int
    rows: int = 0
    occurrences: int = 0
    reason: str = ""
    classes: tuple[str, ...] = ()


@dataclass
class LabelReport:
    """What became of the labels that are no class.

    Attributes:
        replaced: old ids.
        pruned: classes that were removed.
        skipped: labels that the hierarchy does not have.
        unseen: labels that it does not have, and the class above that each counts for, if any.
        rows_left_out: rows without any label that is left.
    """

    replaced: dict[str, Found] = field(default_factory=dict)
    pruned: dict[str, Found] = field(default_factory=dict)
    skipped: dict[str, Found] = field(default_factory=dict)
    unseen: dict[str, Found] = field(default_factory=dict)
    rows_left_out: int = 0

    def messages(self) -> list[str]:
        """Return what to say about them, one sentence each."""

        def count(found: dict[str, Found], what: str) -> str:
            total = plural(sum(one.occurrences for one in found.values()), "occurrence")
            return f"{plural(len(found), what)} ({total}) {'was' if len(found) == 1 else 'were'}"

        said = []
        for old, one in [*self.replaced.items()][:1]:
            said.append(
                f"{count(self.replaced, 'old id')} replaced by the classes that took their place, "
                f"such as {old!r} by {quoted(one.classes)}"
            )
        for old, one in [*self.pruned.items()][:1]:
            said.append(
                f"{count(self.pruned, 'pruned label')} counted for the nearest ancestors that were "
                f"kept, such as {old!r} for {quoted(one.classes) if one.classes else 'no class'}"
            )
        if self.skipped:
            such = quoted(self.skipped, most=3)
            said.append(f"{count(self.skipped, 'unknown label')} skipped, such as {such}")
        if self.rows_left_out:
            rows, verb = (
                plural(self.rows_left_out, "row"),
                "is" if self.rows_left_out == 1 else "are",
            )
            said.append(f"{rows} without a label of the hierarchy {verb} left out")
        return said

    def warn(self, path: Location) -> None:
        for message in self.messages():
            warnings.warn(f"{path}: {message}", LabelWarning, stacklevel=4)

    def write(self, path: Path) -> None:
        """Write the skipped labels as CSV, the most frequent first."""
        with atomic_write(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(HEADER)
            ordered = sorted(self.skipped.items(), key=lambda item: (-item[1].rows, item[0]))
            for label, one in ordered:
                writer.writerow((label, one.rows, one.occurrences, one.line, one.reason))


def class_labels(
    raw: Sequence[Sequence[str]],
    rows: Sequence[int],
    hierarchy: Hierarchy,
    *,
    unknown: Unknown = "error",
    path: Location,
    lines: Sequence[int],
) -> tuple[list[list[str]], LabelReport]:
    """Return each set of labels as names of classes, and a report of those that are none.

    Args:
        raw: distinct sets of labels.
        rows: how many rows have each set.
        hierarchy: the taxonomy.
        unknown: "error" to raise on a label that it does not have, "skip" to leave it out,
            "nearest" to let it count for the nearest class above it, if there is any.
        path: the file, for errors.
        lines: the first line of each set.

    Raises:
        LabelError: naming the line of the first unknown label, and how many there are.
    """
    report = LabelReport()
    known: dict[str, tuple[str, ...]] = {}
    named = []
    for labels, line, times in zip(raw, lines, rows, strict=True):
        for label in labels:
            if label not in known:
                known[label] = stand_for(label, hierarchy, report, line, unknown)
        named.append(list(dict.fromkeys(name for label in labels for name in known[label])))
        for label in dict.fromkeys(labels):
            for part in (report.replaced, report.pruned, report.skipped, report.unseen):
                if label in part:
                    part[label].rows += times
                    part[label].occurrences += times * list(labels).count(label)
    wrong = report.skipped if unknown != "skip" else {}
    if wrong := wrong or (report.unseen if not any(named) else {}):
        first = next(iter(wrong.values()))
        many, them = "", "it"
        if len(wrong) > 1:
            total = sum(one.occurrences for one in wrong.values())
            more = plural(len(wrong) - 1, "more unknown label")
            many, them = f"; {more}, {total:,} occurrences in all", "them"
        end = "" if first.reason.endswith("?") and not many else ";"
        raise LabelError(
            f"{place(path, first.line)}: {first.reason}{many}{end} correct {them}, or pass "
            f"{arg('unknown', 'skip')}"
        )
    return named, report


def stand_for(
    label: str, hierarchy: Hierarchy, report: LabelReport, line: int, unknown: Unknown
) -> tuple[str, ...]:
    """Return the classes that a label stands for, and note it where it is no class."""
    never_heard = is_unknown(label, hierarchy)
    try:
        if never_heard and (report.skipped or report.unseen):  # looking for similar names is slow
            raise LabelError(f"unknown label {label!r}")
        classes = tuple(hierarchy.names[number] for number in hierarchy.resolve(label))
    except LabelError as error:
        found = Found(line, reason=str(error))
        if unknown == "nearest" and never_heard:  # one that is ambiguous stays an error
            report.unseen[label] = found
            found.classes = hierarchy.nearest_known(label)
        else:
            report.skipped[label] = found
        return found.classes
    if label in hierarchy.aliases:
        report.replaced[label] = Found(line, classes=classes)
    elif label in hierarchy.pruned or label not in hierarchy:
        report.pruned[label] = Found(line, classes=classes)
    return classes


def is_unknown(label: str, hierarchy: Hierarchy) -> bool:
    """Whether a hierarchy has never heard of a label."""
    return hierarchy.explain_label(label) is None and hierarchy._find(label) is None


def unseen_rows(
    sets: Sequence[Sequence[str]], codes: Iterable[int], report: LabelReport
) -> dict[int, tuple[str, ...]]:
    """Return by row number the labels that count for the nearest class above them.

    Args:
        sets: distinct sets of labels.
        codes: the set of each row.
        report: what became of them.
    """
    if not report.unseen:
        return {}
    held = [tuple(label for label in labels if label in report.unseen) for labels in sets]
    return {row: held[code] for row, code in enumerate(codes) if held[code]}


def unseen_note(unseen: Mapping[int, Sequence[str]], lost: Sequence[int]) -> str:
    """Say how many rows have labels that the taxonomy lacks; nothing where none has.

    Args:
        unseen: these labels by row.
        lost: the rows of them that have no class above these labels either.
    """
    if not unseen:
        return ""
    labels = dict.fromkeys(label for own in unseen.values() for label in own)
    note = (
        f"{plural(len(unseen), 'row')} {'have' if len(unseen) > 1 else 'has'} "
        f"{plural(len(labels), 'label')} that training never saw: scored at the nearest known "
        f"class above"
    )
    if not lost:
        return note
    names = dict.fromkeys(label for row in lost for label in unseen[row])
    return (
        f"{note}; {plural(len(lost), 'row')} of them {'has' if len(lost) == 1 else 'have'} none "
        f"above, so any class is wrong there: {quoted(names, most=3)}"
    )
