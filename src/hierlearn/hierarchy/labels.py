"""Labels: the annotations of each row, as targets, terminal classes and masks.

Stored sparse, as the class numbers of each row, and made dense for the requested rows only, so
that a large dataset never needs its N x C targets at once.

    targets   (N, C) closed multi-hot: the annotated labels and their ancestors
    terminal  the most specific classes of a row: positive, without a positive child
    mask      (N, C) which entries are known. Policy "negative" (the benchmarks'): all of them.
              Policy "ignore": all but the classes below a terminal label, since a row labeled
              only 'dog' says nothing of breeds. A row without labels is labeled by the root
              alone, so under "ignore" nothing about it is known.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import numpy as np

from hierlearn.errors import DataError, LabelError, unknown_name
from hierlearn.hierarchy.level_columns import as_rows
from hierlearn.hierarchy.names import is_missing
from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label
    from hierlearn.hierarchy.structure import Ints

    Rows = Sequence[int] | Sequence[bool] | NDArray[np.int64] | NDArray[np.bool_] | slice

UnlabeledDescendants = Literal["negative", "ignore"]


def row_numbers(rows: Rows | None, count: int, what: str = "the selection") -> Ints:
    """Return the row numbers that a list, an array, a slice or a boolean mask picks.

    Args:
        rows: numbers from 0, a slice, or one boolean per row; None picks all.
        count: N, the number of rows.
        what: what picks them, for error messages.
    """
    if rows is None or isinstance(rows, slice):
        return np.arange(count)[rows or slice(None)]
    picked = np.asarray(rows)
    if picked.dtype == bool:
        if picked.shape != (count,):
            raise DataError(f"{what} is a mask of shape {picked.shape}, but there are {count} rows")
        return np.flatnonzero(picked)
    if picked.ndim != 1 or (picked.size and picked.dtype.kind not in "iu"):
        raise DataError(
            f"{what} must be row numbers or a mask, not {picked.dtype} of shape {picked.shape}"
        )
    outside = picked[(picked < 0) | (picked >= count)]
    if len(outside):
        raise DataError(
            f"{what} names row {outside[0]}, but there are {count} rows, counted from 0"
        )
    return picked.astype(np.int64)


def has_no_label(row: object) -> bool:
    """Whether a row is a single missing value; an empty list is an iterable of no labels."""
    return (isinstance(row, str) or not hasattr(row, "__iter__")) and is_missing(row)


class Labels:
    """The annotated labels of N rows against a hierarchy.

    Args:
        rows: for each row a label or an iterable of labels; a label is a path or an unambiguous
            bare name, at any level. A row may be empty or missing: None, "", NaN, NA. Or a frame
            or an (N, L) array of names, one column per level.
        hierarchy: the taxonomy.
        unlabeled_descendants: how the classes below a row's most specific labels count.
        numbers: whether integers are class numbers; otherwise they are names.

    Raises:
        LabelError: naming the row, counted from 0, and the nearest known labels.

    Example:
        >>> from hierlearn import Hierarchy
        >>> h = Hierarchy.from_paths(["dog/pug", "cat"])
        >>> Labels(["dog", "pug"], h).targets().int().tolist()  # cat, dog, dog/pug
        [[0, 1, 0], [0, 1, 1]]
        >>> Labels(["dog", "pug"], h, unlabeled_descendants="ignore").mask().int().tolist()
        [[1, 1, 0], [1, 1, 1]]
    """

    hierarchy: Hierarchy
    unlabeled_descendants: UnlabeledDescendants
    annotated: tuple[Ints, Ints]  # CSR: offsets (N + 1,), class numbers
    closed: tuple[Ints, Ints]  # the same with all ancestors

    def __init__(
        self,
        rows: Iterable[Label | Iterable[Label] | None],
        hierarchy: Hierarchy,
        *,
        unlabeled_descendants: UnlabeledDescendants = "negative",
        numbers: bool = False,
    ) -> None:
        if unlabeled_descendants not in get_args(UnlabeledDescendants):
            raise LabelError(
                unknown_name(
                    "value of unlabeled_descendants",
                    str(unlabeled_descendants),
                    get_args(UnlabeledDescendants),
                )
            )
        if not isinstance(rows, (str, bytes)):  # look_up words what is wrong with one text
            rows = as_rows(rows, hierarchy.sep)
            rows = (None if has_no_label(row) else row for row in rows)
        annotated = hierarchy.look_up(rows, numbers=numbers)
        closed = hierarchy.close(*annotated)
        vars(self).update(
            hierarchy=hierarchy,
            unlabeled_descendants=unlabeled_descendants,
            annotated=annotated,
            closed=closed,
        )

    @classmethod
    def from_numbers(
        cls,
        offsets: Ints,
        numbers: Ints,
        hierarchy: Hierarchy,
        unlabeled_descendants: UnlabeledDescendants = "negative",
    ) -> Labels:
        """Return the labels of rows given as CSR class numbers.

        Args:
            offsets: (N + 1,) where each row begins.
            numbers: the class numbers, row after row.
            hierarchy: the taxonomy.
            unlabeled_descendants: how the classes below a row's most specific labels count.
        """
        new = cls((), hierarchy, unlabeled_descendants=unlabeled_descendants)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(hierarchy):
            raise LabelError(f"class numbers must lie in 0..{len(hierarchy) - 1}")
        annotated = (np.asarray(offsets, dtype=np.int64), np.asarray(numbers, dtype=np.int64))
        vars(new).update(annotated=annotated, closed=hierarchy.close(*annotated))
        return new

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Labels are immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Labels are immutable; {name} cannot be deleted")

    def __len__(self) -> int:
        return len(self.annotated[0]) - 1

    def __repr__(self) -> str:
        policy = f"unlabeled_descendants={self.unlabeled_descendants!r}"
        return f"Labels({len(self)} rows, {self.hierarchy!r}, {policy})"

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
    def terminal_counts(self) -> Ints:
        """(N,) how many terminal classes each row has."""
        return np.diff(self.terminal[0])

    def weighted_counts(
        self, weights: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the summed weights of the rows of each class, closed and most specific.

        Args:
            weights: (N,) of the rows; None counts each as 1.
        """
        own = np.ones(len(self)) if weights is None else weights
        closed, terminal = (
            np.bincount(numbers, np.repeat(own, np.diff(offsets)), len(self.hierarchy))
            for offsets, numbers in (self.closed, self.terminal)
        )
        return closed.astype(np.float64), terminal.astype(np.float64)

    def identity(self) -> list[NDArray[Any]]:
        """Return the arrays by which a resumed training recognizes its labels."""
        return [*self.annotated]

    @property
    def single_path(self) -> bool:
        """Whether every row has exactly one terminal class."""
        return bool(np.all(self.terminal_counts == 1))

    def terminal_ids(self) -> Ints:
        """Return (N,) the one terminal class of each row.

        Raises:
            LabelError: naming the first row that has none or several.
        """
        counts = np.diff(self.terminal[0])
        odd = np.flatnonzero(counts != 1)
        if len(odd):
            raise LabelError(
                f"row {odd[0]} has {counts[odd[0]]} terminal labels; "
                f"one class per row is needed here"
            )
        return self.terminal[1]

    def targets(self, rows: Rows | None = None) -> Tensor:
        """Return (N, C) bool closed targets of the given rows, by default all."""
        return self._dense(self.closed, row_numbers(rows, len(self)))

    def mask(self, rows: Rows | None = None) -> Tensor:
        """Return (N, C) bool: which entries of the given rows are known."""
        import torch

        picked = row_numbers(rows, len(self))
        if self.unlabeled_descendants == "negative":
            return torch.ones((len(picked), len(self.hierarchy)), dtype=torch.bool)
        terminal = self._dense(self.terminal, picked)
        covered = self.hierarchy.max_down(terminal.to(torch.uint8)).bool()
        unlabeled = torch.from_numpy(np.diff(self.closed[0])[picked] == 0)
        return ~(covered | unlabeled[:, None]) | self._dense(self.closed, picked)

    def _dense(self, csr: tuple[Ints, Ints], picked: Ints) -> Tensor:
        import torch

        offsets, numbers = csr
        positions, counts = expand_ranges(offsets, picked)
        flat = np.repeat(np.arange(len(picked)) * len(self.hierarchy), counts) + numbers[positions]
        dense = torch.zeros((len(picked), len(self.hierarchy)), dtype=torch.bool)
        return dense.view(-1).index_fill_(0, torch.from_numpy(flat), True).view_as(dense)
