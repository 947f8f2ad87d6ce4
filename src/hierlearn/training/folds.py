"""Folds: which rows are predicted by networks that were not trained on them.

Rows with one path are dealt out class by class, so that every fold has its share of each class.
Rows with the same id stay together, since a row must not be predicted from its own copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import HierlearnError
from hierlearn.training.seeding import generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy.labels import Labels

    Ints = NDArray[np.int64]

FOLDS = 5
FEW_ROWS = 5000  # below, every row is predicted once; from there on, those of one fold are
MOST_ENTRIES = 50_000_000  # probabilities that are held out, of one answer


def held_out(
    labels: Labels, ids: Sequence[str] | None = None, *, seed: int = 0, folds: int = FOLDS
) -> list[Ints]:
    """Return the rows that each training leaves out: five folds of few rows, one fold of many.

    Args:
        labels: of all rows.
        ids: of the rows; None where all differ.
        seed: of the order in which rows are dealt out.
        folds: how many.
    """
    rows = len(labels)
    groups = group_numbers(ids, rows)
    count = int(groups.max()) + 1 if rows else 0
    if count < 2:
        raise HierlearnError(
            f"out-of-fold predictions need rows of at least 2 different ids, not {count}"
        )
    folds = min(folds, count)
    fold_of_group = deal(first_class(labels), groups, folds, seed)
    fold = fold_of_group[groups]
    found = [np.flatnonzero(fold == number) for number in range(folds)]
    most = max(MOST_ENTRIES // len(labels.hierarchy), 1)
    if rows < FEW_ROWS and rows <= most:
        return found
    return [found[0][:most]]


def group_numbers(ids: Sequence[str] | None, rows: int) -> Ints:
    """Return the number of each row's group, from 0."""
    if ids is None:
        return np.arange(rows)
    _, found = np.unique(np.asarray(ids).astype(str), return_inverse=True)
    return found.astype(np.int64)


def first_class(labels: Labels) -> Ints:
    """Return the most specific class of each row with one path; -1 for every other row."""
    offsets, classes = labels.terminal
    found = np.full(len(labels), -1, dtype=np.int64)
    single = np.diff(offsets) == 1
    found[single] = classes[offsets[:-1][single]]
    return found


def deal(classes: Ints, groups: Ints, folds: int, seed: int) -> Ints:
    """Return the fold of each group: shuffled, ordered by the class of its first row, dealt out."""
    import torch

    count = int(groups.max()) + 1
    _, first = np.unique(groups, return_index=True)
    shuffled = torch.randperm(count, generator=generator(seed, "folds")).numpy()
    ordered = shuffled[np.argsort(classes[first][shuffled], kind="stable")]
    found = np.empty(count, dtype=np.int64)
    found[ordered] = np.arange(count) % folds
    return found
