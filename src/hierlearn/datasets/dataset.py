"""Dataset: inputs, annotated labels, the hierarchy they belong to, and named splits of the rows."""

from __future__ import annotations

import hashlib
import json
from array import array
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hierlearn.datasets.tables.kinds import as_float32
from hierlearn.errors import DataError, arg, plural, unknown_name
from hierlearn.hierarchy.labels import Labels, row_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from hierlearn.datasets.images import Images
    from hierlearn.datasets.labels import LabelReport
    from hierlearn.datasets.tables.table import Table
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.labels import Rows


SPLITS_SHOWN = 8  # in one line
Kind = Literal["numbers", "texts", "sparse", "table", "images"]


def count_rows(inputs: Any) -> int:
    """Return how many rows raw inputs have: a matrix, a table or frame, or a list of texts."""
    return int(inputs.shape[0]) if hasattr(inputs, "shape") else len(inputs)


def shown_texts(inputs: Any) -> list[str] | None:
    """Return what to show of each row: a text, the texts of a table, or the name of an image.

    None where there is none.

    Args:
        inputs: those of a Dataset.
    """
    if isinstance(inputs, list):
        return inputs
    if getattr(inputs, "kind", None) == "images":
        found: list[str] = inputs.names
        return found
    names = inputs.named("text") if getattr(inputs, "kind", None) == "table" else []
    if not names:
        return None
    columns = [inputs.columns[name] for name in names]
    return [" | ".join(texts) for texts in zip(*columns, strict=True)]


def row_names(dataset: Dataset) -> list[str] | None:
    """Return what to call each row: its id, else its line; None where it has neither."""
    if dataset.ids is not None:
        return [f"id {one}" for one in dataset.ids]
    if dataset.lines is not None:
        return [f"line {one}" for one in dataset.lines]
    return None


@dataclass(frozen=True)
class Dataset:
    """Rows, their labels and the taxonomy.

    Attributes:
        inputs: (N, D) float32 with NaN where a value is missing; or a SciPy sparse array of that
            shape, which is converted to CSR; or a list of N texts; or a ``Table`` of columns of
            different kinds; or ``Images``; or rows that stay in their file, see ``stream_table``.
        labels: the annotated labels of each row, as class names; a row may have none or several.
            Rows may share one list, so do not change them in place.
        hierarchy: the taxonomy the labels belong to.
        splits: row numbers by split name, usually "train", "valid" and "test"; a boolean mask of
            the rows is converted to numbers.
        name: the name of the dataset.
        feature_names: D names; empty for texts, or where the columns have no names.
        source: where the rows come from, in one sentence.
        ids: N identifiers, such as the key of each row in a database; None where there are none.
        groups: N names of what the rows belong to, such as a patient or a recording; rows of one
            group stay together wherever rows are held out. None where rows of one id do.
        lines: the line of each row in its file; None where rows come from no file, or several.
        label_report: what became of labels that are no class, where they were read from a file.
        unseen: by row number, labels that the hierarchy lacks, where the nearest class above them
            stands in ``labels`` instead, if there is one.
    """

    inputs: NDArray[np.float32] | list[str] | Table | Images
    labels: list[list[str]]
    hierarchy: Hierarchy
    splits: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    name: str = ""
    feature_names: Sequence[str] = ()
    source: str = ""
    ids: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    lines: Sequence[int] | None = None
    label_report: LabelReport | None = None
    unseen: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inputs: Any = self.inputs
        inputs = inputs.tocsr() if hasattr(inputs, "tocsr") else as_float32(inputs)
        object.__setattr__(self, "inputs", inputs)
        rows = count_rows(inputs)
        for name, one in (("labels", "list of labels"), ("ids", "id"), ("groups", "group")):
            given = getattr(self, name)
            if given is not None and len(given) != rows:
                raise DataError(
                    f"inputs have {rows} rows but {name} have {len(given)}; give one {one} per row"
                )
        splits = {
            name: row_numbers(rows, len(self), f"split {name!r}")
            for name, rows in self.splits.items()
        }
        object.__setattr__(self, "splits", splits)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        parts = [f"{name} {len(rows):,}" for name, rows in self.splits.items()]
        more = ", ..." if len(parts) > SPLITS_SHOWN else ""
        splits = f" ({', '.join(parts[:SPLITS_SHOWN])}{more})" if parts else ""
        shape = getattr(self.inputs, "shape", None)
        wide = "" if shape is None or self.kind == "images" else f" of {plural(shape[1], 'column')}"
        rows = f"{plural(len(self), 'row')}{splits}"
        return f"Dataset({self.name!r}, {rows}, {self.kind}{wide},\n        {self.hierarchy!r})"

    @property
    def kind(self) -> Kind:
        """What the inputs are: "numbers", "texts", "sparse", "table" or "images"."""
        if isinstance(self.inputs, list):
            return "texts"
        if hasattr(self.inputs, "tocsr"):
            return "sparse"
        found: Kind = getattr(self.inputs, "kind", "numbers")  # tables and rows in a file know
        return found

    @property
    def is_sparse(self) -> bool:
        """Whether the inputs are a sparse matrix."""
        return self.kind == "sparse"

    @property
    def held_together(self) -> Sequence[str] | None:
        """What tells which rows are held out together: groups, else ids."""
        return self.ids if self.groups is None else self.groups

    @property
    def is_text(self) -> bool:
        """Whether the inputs are texts."""
        return self.kind == "texts"

    def input_parts(self) -> Iterator[Any]:
        """Yield the inputs in order: in one part, or in several where they stay in their file."""
        inputs: Any = self.inputs
        if hasattr(inputs, "parts"):
            yield from inputs.parts()
        else:
            yield inputs

    def take(self, rows: Rows) -> Dataset:
        """Return the dataset of the given rows, in that order, without splits.

        Args:
            rows: row numbers, a slice, or a boolean mask of all rows.
        """
        selected = row_numbers(rows, len(self))
        inputs: Any = self.inputs
        is_list = isinstance(inputs, list)
        ids, groups, lines = self.ids, self.groups, self.lines
        numbers = enumerate(selected.tolist() if self.unseen else ())
        return replace(
            self,
            inputs=[inputs[row] for row in selected] if is_list else inputs[selected],
            labels=[self.labels[row] for row in selected],
            splits={},
            ids=None if ids is None else [ids[row] for row in selected],
            groups=None if groups is None else [groups[row] for row in selected],
            lines=None if lines is None else array("q", np.asarray(lines, "q")[selected].tobytes()),
            unseen={place: self.unseen[row] for place, row in numbers if row in self.unseen},
        )

    def keep(self, rows: Rows) -> Dataset:
        """Return the dataset of the given rows, with those splits that are left of its own.

        Args:
            rows: row numbers, a slice, or a boolean mask of all rows.
        """
        selected = row_numbers(rows, len(self))
        place = np.full(len(self), -1, dtype=np.int64)
        place[selected] = np.arange(len(selected))
        splits = {name: place[old][place[old] >= 0] for name, old in self.splits.items()}
        return replace(self.take(selected), splits=splits)

    def split(self, name: str) -> Dataset:
        """Return the rows of one split as a dataset of their own."""
        if name not in self.splits:
            raise DataError(unknown_name("split", name, self.splits))
        return self.take(self.splits[name])

    def digest(self) -> str:
        """Return the sha256 of inputs, labels, splits and groups: equal for equal data.

        Rows that stay in their file have the digest of the same rows in memory, and sparse rows
        have one digest, however they are stored.
        """
        sums = hashlib.sha256()
        for block in self._blocks():
            sums.update(block)
        sums.update(json.dumps([list(row) for row in self.labels]).encode())
        for name, rows in sorted(self.splits.items()):
            sums.update(name.encode() + np.asarray(rows, dtype=np.int64).tobytes())
        if self.groups is not None:
            sums.update(json.dumps([str(one) for one in self.groups]).encode())
        return sums.hexdigest()

    def _blocks(self) -> Iterator[bytes]:
        """Yield the inputs as bytes that do not depend on how they are stored or read."""
        inputs: Any = self.inputs
        if self.kind == "sparse":  # without stored zeros, with sorted columns and wide indices
            rows = inputs.copy()
            rows.sum_duplicates()  # also sorts the columns of each row
            rows.eliminate_zeros()
            yield f"sparse {rows.shape} {rows.dtype.name}".encode()
            for indices in (rows.indptr, rows.indices):
                yield indices.astype(np.int64).tobytes()
            yield np.ascontiguousarray(rows.data).tobytes()
        elif self.kind == "texts":  # one JSON list, one text at a time
            start = "["
            for part in self.input_parts():
                for text in part:
                    yield (start + json.dumps(text)).encode()
                    start = ", "
            yield b"[]" if start == "[" else b"]"
        elif self.kind in ("table", "images"):
            yield from inputs.blocks()
        else:
            for part in self.input_parts():
                yield np.ascontiguousarray(part).tobytes()


# ---------------------------------------- classes with too few rows


def training_counts(dataset: Dataset) -> NDArray[np.int64]:
    """Return (C,) the training rows of each class, those of its descendants included.

    Training rows are those of the split "train"; without one, those of neither valid nor test.
    """
    rows = dataset.splits.get("train")
    if rows is None:
        held = [dataset.splits[name] for name in ("valid", "test") if name in dataset.splits]
        rows = np.setdiff1d(np.arange(len(dataset)), np.concatenate([[], *held]).astype(np.int64))
    return Labels([dataset.labels[row] for row in rows], dataset.hierarchy).counts


def prune(dataset: Dataset, min_rows: int = 1) -> Dataset:
    """Return the dataset without the classes that have fewer training rows.

    Labels that are removed are replaced by their nearest ancestors that are kept; rows whose every
    label is gone are left out.

    Args:
        dataset: the rows.
        min_rows: the fewest training rows a class may have, those of its descendants included.
    """
    if min_rows < 1:
        raise DataError(f"{arg('min_rows')} must be at least 1, not {min_rows}")
    counts = training_counts(dataset)
    if not np.any(counts >= min_rows):
        raise DataError(
            f"no class has {arg('min_rows', min_rows)} training rows; the most frequent has "
            f"{int(counts.max()):,}"
        )
    hierarchy = dataset.hierarchy.prune(min_rows, counts)
    labels = map_labels(dataset.labels, hierarchy)
    new = replace(dataset, hierarchy=hierarchy, labels=labels)
    gone = [bool(old) and not now for old, now in zip(dataset.labels, labels, strict=True)]
    return new.keep(~np.array(gone, dtype=bool)) if any(gone) else new


def map_labels(rows: list[list[str]], hierarchy: Hierarchy) -> list[list[str]]:
    """Return rows of labels with those that were pruned replaced by their nearest ancestors.

    A label that is an ancestor of another one of its row, or equal to it, is dropped.
    """
    labels = Labels(rows, hierarchy)
    offsets, numbers = labels.annotated
    ends, terminal = labels.terminal
    found = []
    for row in range(len(rows)):
        wanted = {*terminal[ends[row] : ends[row + 1]].tolist()}
        own = dict.fromkeys(numbers[offsets[row] : offsets[row + 1]].tolist())
        found.append([hierarchy.names[number] for number in own if number in wanted])
    return found


def without_rows(dataset: Dataset) -> str:
    """Return in one sentence how many classes have no training row; empty where all have one."""
    empty = int((training_counts(dataset) == 0).sum())
    if not empty:
        return ""
    have = "has" if empty == 1 else "have"
    return (
        f"{empty:,} of {plural(len(dataset.hierarchy), 'class', 'classes')} {have} no training row "
        f"and cannot be learned; min_rows=1 leaves them out"
    )
