"""Labels: what the data says of each row, as targets, terminal classes and masks.

Held sparse, as class numbers a row, and made dense for the rows asked for, so that a large
dataset never needs its N x C targets at once.

    targets   (N, C) closed multi-hot: the annotated labels and their ancestors
    terminal  the most specific classes of a row: positive, without a positive child
    mask      (N, C) which entries are known. Policy "negative" (the benchmarks'): all of them.
              Policy "unknown": all but the classes below a terminal label, since a row labelled
              only 'dog' says nothing of breeds. A row without labels is labelled by the root
              alone, so under "unknown" nothing about it is known.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from hierlearn.errors import LabelError, unknown_name
from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label
    from hierlearn.hierarchy.structure import Ints

Below = Literal["negative", "unknown"]


class Labels:
    """The annotated labels of N rows against a hierarchy.

    Args:
        rows: a label, an iterable of labels, or None a row; a label is a path, an unambiguous
            bare name or a class number, at any level. Rows may be empty.
        hierarchy: the taxonomy.
        below: what is said of the classes below a row's most specific labels.

    Raises:
        LabelError: naming the row, counted from 0, and the nearest known labels.

    Example:
        >>> from hierlearn import Hierarchy
        >>> h = Hierarchy.from_paths(["dog/pug", "cat"])
        >>> Labels(["dog", "pug"], h).targets().int().tolist()  # cat, dog, dog/pug
        [[0, 1, 0], [0, 1, 1]]
        >>> Labels(["dog", "pug"], h, below="unknown").mask().int().tolist()
        [[1, 1, 0], [1, 1, 1]]
    """

    def __init__(
        self,
        rows: Iterable[Label | Iterable[Label] | None],
        hierarchy: Hierarchy,
        *,
        below: Below = "negative",
    ) -> None:
        if below not in get_args(Below):
            raise LabelError(unknown_name("policy", str(below), get_args(Below)))
        self.hierarchy = hierarchy
        self.below = below
        self.annotated = hierarchy.look_up(rows)  # CSR: offsets (N + 1,), class numbers
        self.closed = hierarchy.close(*self.annotated)

    def __len__(self) -> int:
        return len(self.annotated[0]) - 1

    def __repr__(self) -> str:
        return f"Labels({len(self)} rows, {self.hierarchy!r}, below={self.below!r})"

    @cached_property
    def terminal(self) -> tuple[Ints, Ints]:
        """CSR (offsets, class numbers): the most specific classes of each row."""
        offsets, numbers = self.closed
        rows = np.repeat(np.arange(len(self)), np.diff(offsets))
        keep = self.hierarchy.most_specific(rows, numbers)
        counts = np.bincount(rows[keep], minlength=len(self))
        return np.concatenate([[0], np.cumsum(counts)]), numbers[keep]

    @cached_property
    def terminal_classes(self) -> Ints:
        """The terminal classes of these rows: the leaves, and inner classes that end a row."""
        return np.union1d(self.hierarchy.leaves, self.terminal[1])

    @cached_property
    def counts(self) -> Ints:
        """(C,) the number of rows of each class, descendants' rows included."""
        return np.bincount(self.closed[1], minlength=len(self.hierarchy))

    @property
    def single_path(self) -> bool:
        """Whether every row has exactly one terminal class."""
        return bool(np.all(np.diff(self.terminal[0]) == 1))

    def terminal_ids(self) -> Ints:
        """Return (N,) the one terminal class of each row.

        Raises:
            LabelError: naming the first row that has none or several.
        """
        counts = np.diff(self.terminal[0])
        odd = np.flatnonzero(counts != 1)
        if len(odd):
            raise LabelError(
                f"row {odd[0]} has {counts[odd[0]]} terminal labels; one class a row is needed here"
            )
        return self.terminal[1]

    def targets(self, rows: Sequence[int] | Ints | slice | None = None) -> Tensor:
        """Return (N, C) bool closed targets of the given rows, by default all."""
        return self._dense(self.closed, rows)

    def mask(self, rows: Sequence[int] | Ints | slice | None = None) -> Tensor:
        """Return (N, C) bool: which entries of the given rows are known."""
        import torch

        picked = self._numbers(rows)
        if self.below == "negative":
            return torch.ones((len(picked), len(self.hierarchy)), dtype=torch.bool)
        ends = self._dense(self.terminal, rows)
        covered = self.hierarchy.max_down(ends.to(torch.uint8)).bool()
        unlabelled = torch.from_numpy(np.diff(self.closed[0])[picked] == 0)
        return ~(covered | unlabelled[:, None]) | self.targets(rows)

    def _numbers(self, rows: Sequence[int] | Ints | slice | None) -> NDArray[np.int64]:
        every = np.arange(len(self))
        if rows is None or isinstance(rows, slice):
            return every[rows or slice(None)]
        return every[np.asarray(rows, dtype=np.int64)]

    def _dense(self, csr: tuple[Ints, Ints], rows: Sequence[int] | Ints | slice | None) -> Tensor:
        import torch

        offsets, numbers = csr
        picked = self._numbers(rows)
        positions, counts = expand_ranges(offsets, picked)
        flat = np.repeat(np.arange(len(picked)) * len(self.hierarchy), counts) + numbers[positions]
        dense = torch.zeros((len(picked), len(self.hierarchy)), dtype=torch.bool)
        return dense.view(-1).index_fill_(0, torch.from_numpy(flat), True).view_as(dense)
