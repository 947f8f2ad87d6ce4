"""SharedLabels: the labels of many rows that have few label sets, each set stored once.

A row costs 4 bytes, whatever its labels and the depth of the hierarchy. What ``Labels`` holds per
row is made on demand.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import LabelError
from hierlearn.hierarchy.labels import Labels, row_numbers
from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.labels import Rows, UnlabeledDescendants
    from hierlearn.hierarchy.structure import Ints


class SharedLabels(Labels):
    """The labels of N rows by the set of each.

    Args:
        sets: the labels of every set; each is the set of at least one row.
        of_row: (N,) the number of the set of each row.
    """

    sets: Labels
    of_row: NDArray[np.int32]

    def __init__(self, sets: Labels, of_row: NDArray[np.int32]) -> None:
        policy = sets.unlabeled_descendants
        vars(self).update(
            hierarchy=sets.hierarchy, unlabeled_descendants=policy, sets=sets, of_row=of_row
        )

    def __len__(self) -> int:
        return len(self.of_row)

    @cached_property
    def annotated(self) -> tuple[Ints, Ints]:  # type: ignore[override]
        """CSR (offsets, class numbers): the annotated classes of each row."""
        return self._of_rows(self.sets.annotated)

    @cached_property
    def closed(self) -> tuple[Ints, Ints]:  # type: ignore[override]
        """The same with all ancestors."""
        return self._of_rows(self.sets.closed)

    @cached_property
    def terminal(self) -> tuple[Ints, Ints]:
        """CSR (offsets, class numbers): the most specific classes of each row."""
        return self._of_rows(self.sets.terminal)

    @property
    def terminal_classes(self) -> Ints:
        """The terminal classes of these rows: the leaves, and inner classes that end a row."""
        return self.sets.terminal_classes

    @property
    def terminal_counts(self) -> Ints:
        """(N,) how many terminal classes each row has."""
        return self.sets.terminal_counts[self.of_row]

    @cached_property
    def counts(self) -> Ints:
        """(C,) the number of rows of each class, descendants' rows included."""
        return self.weighted_counts()[0].astype(np.int64)

    @property
    def single_path(self) -> bool:
        """Whether every row has exactly one terminal class."""
        return self.sets.single_path

    def weighted_counts(
        self, weights: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the summed weights of the rows of each class, closed and most specific."""
        of_sets = np.bincount(self.of_row, weights, len(self.sets))
        return self.sets.weighted_counts(of_sets.astype(np.float64))

    def identity(self) -> list[NDArray[Any]]:
        """Return the arrays by which a resumed training recognizes its labels."""
        return [*self.sets.annotated, self.of_row]

    def targets(self, rows: Rows | None = None) -> Tensor:
        """Return (N, C) bool closed targets of the given rows, by default all."""
        return self.sets.targets(self._sets_of(rows))

    def mask(self, rows: Rows | None = None) -> Tensor:
        """Return (N, C) bool: which entries of the given rows are known."""
        return self.sets.mask(self._sets_of(rows))

    def _sets_of(self, rows: Rows | None) -> Ints:
        return self.of_row[row_numbers(rows, len(self))].astype(np.int64)

    def _of_rows(self, csr: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
        offsets, numbers = csr
        positions, counts = expand_ranges(offsets, self.of_row.astype(np.int64))
        return np.concatenate([[0], np.cumsum(counts)]), numbers[positions]


def labels_of_rows(
    rows: list[list[str]],
    hierarchy: Hierarchy,
    *,
    unlabeled_descendants: UnlabeledDescendants = "negative",
) -> Labels:
    """Return the labels of a dataset, each list of names looked up once where rows share lists.

    Args:
        rows: the names of the labels of each row, as ``Dataset.labels``.
        hierarchy: the taxonomy.
        unlabeled_descendants: how the classes below a row's most specific labels count.
    """
    numbers: dict[int, int] = {}
    found = (numbers.setdefault(id(row), len(numbers)) for row in rows)
    of_row = np.fromiter(found, np.int32, len(rows))
    if 2 * len(numbers) <= len(rows):
        first = np.zeros(len(numbers), dtype=np.int64)
        first[of_row[::-1]] = np.arange(len(rows) - 1, -1, -1)  # the last one written
        try:
            sets = Labels(
                [rows[row] for row in first.tolist()],
                hierarchy,
                unlabeled_descendants=unlabeled_descendants,
            )
        except LabelError:  # worded below, with the number of the row
            pass
        else:
            return SharedLabels(sets, of_row)
    return Labels(rows, hierarchy, unlabeled_descendants=unlabeled_descendants)
