"""Judged: the terminal decisions of one entry against the truth, row by row and class by class.

A decision is right where it lies in the closure of the row's labels. A wrong one is judged by the
row's nearest label, the one whose lowest common ancestor with the decision has the smallest height;
that height says how wrong it is. Of the rows of class c, the accuracy of c is the share whose
decision is c or lies below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy

    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Truth:
    """The labels of the test rows, as CSR.

    Attributes:
        hierarchy: the taxonomy.
        offsets: (N + 1,) where each row begins in ``closed``.
        closed: the classes of each row, closed under ancestors.
        rows, labels: the row and the class of every terminal label.
    """

    hierarchy: Hierarchy
    offsets: Ints
    closed: Ints
    rows: Ints
    labels: Ints

    @classmethod
    def of(cls, hierarchy: Hierarchy, offsets: Ints, closed: Ints) -> Truth:
        """Find the terminal labels of closed rows."""
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        ends = hierarchy.most_specific(rows, closed)
        return cls(hierarchy, offsets, closed, rows[ends], closed[ends])

    @property
    def support(self) -> Ints:
        """(C,) the test rows of each class."""
        return np.bincount(self.closed, minlength=len(self.hierarchy))

    @property
    def labeled(self) -> int:
        """How many rows have a label."""
        return int(np.count_nonzero(np.diff(self.offsets)))

    @property
    def keys(self) -> Ints:
        """Row and class of each closed label in one number, ascending."""
        rows = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        return rows * len(self.hierarchy) + self.closed


@dataclass(frozen=True)
class Judged:
    """The decisions of an entry, judged; (S, N) each, S seeds.

    Attributes:
        decided: the class.
        nearest: the row's label that lies nearest to it; -1 where the row has none.
        heights: how wrong it is: 0 where it is right or the row has no label.
        probability: how probable the model thought it.
        hits: (C,) decisions at or below each class, of the class's rows, over all seeds.
    """

    decided: Ints
    nearest: Ints
    heights: Ints
    probability: NDArray[np.float64]
    hits: Ints


def judge(truth: Truth, rows: Mapping[str, NDArray[Any]]) -> Judged:
    """Judge the decisions that a study keeps of an entry."""
    hierarchy, count = truth.hierarchy, len(truth.hierarchy)
    decided = rows["terminal"].astype(np.int64)
    nearest = np.full(decided.shape, -1, dtype=np.int64)
    heights = np.zeros(decided.shape, dtype=np.int64)
    hits = np.zeros(count, dtype=np.int64)
    starts = np.flatnonzero(np.diff(truth.rows, prepend=-1))  # the first label of each row
    labeled = truth.rows[starts]
    keys = truth.keys
    row_numbers = np.arange(decided.shape[1])
    for seed, classes in enumerate(decided):
        far = hierarchy.lca_heights(classes[truth.rows], truth.labels)
        order = np.lexsort((far, truth.rows))[starts]  # the nearest label of each row
        nearest[seed, labeled] = truth.labels[order]
        heights[seed, labeled] = far[order]
        right = np.isin(row_numbers * count + classes, keys)
        heights[seed, right] = 0
        offsets, closed = hierarchy.close(np.arange(len(classes) + 1), classes)
        closed_keys = np.repeat(row_numbers, np.diff(offsets)) * count + closed
        hits += np.bincount(closed[np.isin(closed_keys, keys)], minlength=count)
    return Judged(decided, nearest, heights, rows["probability"].astype(np.float64), hits)
