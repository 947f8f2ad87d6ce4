"""Pruning by rows: the taxonomy of a dataset without the classes that have too few of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import DataError, plural
from hierlearn.hierarchy.labels import Labels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.hierarchy import Hierarchy


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
        raise DataError(f"min_rows must be at least 1, not {min_rows}")
    counts = training_counts(dataset)
    if not np.any(counts >= min_rows):
        raise DataError(
            f"no class has min_rows={min_rows} training rows; the most frequent has "
            f"{int(counts.max()):,}"
        )
    return relabel(dataset, dataset.hierarchy.prune(min_rows, counts))


def relabel(dataset: Dataset, hierarchy: Hierarchy) -> Dataset:
    """Return the rows labeled by what is left of their hierarchy.

    Args:
        dataset: the rows.
        hierarchy: the result of ``prune`` or ``restrict`` on the hierarchy of the rows.
    """
    labels = map_labels(dataset.labels, hierarchy)
    new = replace(dataset, hierarchy=hierarchy, labels=labels)
    gone = [bool(old) and not now for old, now in zip(dataset.labels, labels, strict=True)]
    return new.keep(~np.array(gone, dtype=bool)) if any(gone) else new


def map_labels(rows: list[list[str]], hierarchy: Hierarchy) -> list[list[str]]:
    """Return rows of labels with those that were pruned replaced by their nearest ancestors.

    A label that is an ancestor of another one of its row, or equal to it, is dropped.
    """
    offsets, numbers = hierarchy.look_up(rows)
    places = np.repeat(np.arange(len(rows)), np.diff(offsets))
    closed, ids = hierarchy.close(offsets, numbers)
    of_row = np.repeat(np.arange(len(rows)), np.diff(closed))
    specific = hierarchy.most_specific(of_row, ids)
    keys = of_row[specific] * len(hierarchy) + ids[specific]
    found: list[list[str]] = [[] for _ in rows]
    seen: set[int] = set()
    wanted = set(keys.tolist())
    for row, number in zip(places.tolist(), numbers.tolist(), strict=True):
        key = row * len(hierarchy) + number
        if key in wanted and key not in seen:
            seen.add(key)
            found[row].append(hierarchy.names[number])
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
