"""LabelSets: the labels of the remembered rows, each distinct set stored once.

Rows that share their most specific labels share a set, so that probabilities are sums over sets:
a few hundred of them where every row has one path, whatever the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.hierarchy.structure import expand_ranges
from hierlearn.kernels.neighbor_table import SetTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints

DENSE = 1 << 27  # entries of the targets of all sets that are held as a matrix


@dataclass(frozen=True)
class LabelSets:
    """S distinct label sets, and the set of each of N rows.

    Attributes:
        sets: the labels of every set, its most specific classes.
        of_row: (N,) the number of the set of each row.
    """

    sets: Labels
    of_row: Ints

    @classmethod
    def from_labels(cls, labels: Labels) -> LabelSets:
        """Find the distinct sets among the labels of N rows."""
        first, of_row = distinct_rows(*labels.terminal)
        offsets, numbers = labels.terminal
        return cls(labels_of(take_rows(offsets, numbers, first), labels), of_row)

    def __len__(self) -> int:
        return len(self.of_row)

    @property
    def hierarchy(self) -> Hierarchy:
        """The taxonomy."""
        return self.sets.hierarchy

    def targets(self, numbers: Tensor) -> Tensor:
        """Return (..., C) bool, the closed targets of some sets, on the device of their numbers."""
        if len(self.sets) * len(self.hierarchy) <= DENSE:
            device = numbers.device
            if device not in self._dense:
                self._dense[device] = self.sets.targets().to(device)
            return self._dense[device][numbers]
        flat = numbers.reshape(-1).cpu().numpy()
        return self.sets.targets(flat).to(numbers.device).view(*numbers.shape, -1)

    @cached_property
    def _dense(self) -> dict[torch.device, Tensor]:
        return {}

    @cached_property
    def table(self) -> SetTable:
        """The classes of every set, as the Triton kernels of a head read them."""
        return SetTable(*self.sets.closed, len(self.hierarchy))

    @property
    def is_partial(self) -> bool:
        """Whether classes below a label are unknown, not absent."""
        return self.sets.unlabeled_descendants == "ignore"

    def names(self, rows: Ints | Sequence[int]) -> list[list[str]]:
        """Return the most specific labels of some rows, by name."""
        offsets, numbers = self.sets.terminal
        names = self.hierarchy.names
        return [
            [names[number] for number in numbers[offsets[one] : offsets[one + 1]]]
            for one in self.of_row[rows]
        ]

    def take(self, rows: Ints) -> LabelSets:
        """Return the labels of some rows; sets that no row has any more are dropped."""
        kept, of_row = np.unique(self.of_row[rows], return_inverse=True)
        return LabelSets(labels_of(take_rows(*self.sets.terminal, kept), self.sets), of_row)

    def join(self, *others: LabelSets) -> LabelSets:
        """Return these rows, then those of others; all are of one hierarchy."""
        if any(self.hierarchy != other.hierarchy for other in others):
            raise HierlearnError("the rows are labeled by different hierarchies")
        parts = [self, *others]
        lengths = [np.diff(one.sets.terminal[0]) for one in parts]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
        numbers = np.concatenate([one.sets.terminal[1] for one in parts])
        both = labels_of((offsets, numbers), self.sets)
        first = np.cumsum([0, *(len(one.sets) for one in parts[:-1])])
        of_row = np.concatenate([one.of_row + n for one, n in zip(parts, first, strict=True)])
        return LabelSets.from_labels(both).take(of_row)


def labels_of(csr: tuple[Ints, Ints], like: Labels) -> Labels:
    """Return labels given as class numbers, of the hierarchy and policy of others."""
    return Labels.from_numbers(*csr, like.hierarchy, like.unlabeled_descendants)


def take_rows(offsets: Ints, numbers: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return some rows of a CSR matrix."""
    positions, counts = expand_ranges(offsets, rows)
    return np.concatenate([[0], np.cumsum(counts)]), numbers[positions]


def distinct_rows(offsets: Ints, numbers: Ints) -> tuple[Ints, Ints]:
    """Return the first of each group of equal CSR rows, and (N,) the group of every row."""
    if len(offsets) > 1 and np.all(np.diff(offsets) == 1):
        _, first, of_row = np.unique(numbers, return_index=True, return_inverse=True)
        return first, of_row.astype(np.int64)
    seen: dict[bytes, int] = {}
    of_row = np.empty(len(offsets) - 1, dtype=np.int64)
    found: list[int] = []
    for row, (begin, end) in enumerate(pairwise(offsets)):
        of_row[row] = seen.setdefault(numbers[begin:end].tobytes(), len(seen))
        if len(found) < len(seen):
            found.append(row)
    return np.array(found, dtype=np.int64), of_row
