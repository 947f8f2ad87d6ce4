"""Labels: the annotations of each row, as targets, terminal classes and masks.

Stored sparse, as the class numbers of each row, and made dense for the requested rows only, so
that a large dataset never needs its N x C targets at once. Where many rows have few label sets,
each set is stored once, and a row costs 4 bytes.

    targets   (N, C) closed multi-hot: the annotated labels and their ancestors
    terminal  the most specific classes of a row: positive, without a positive child
    mask      (N, C) which entries are known. Policy "negative" (the benchmarks'): all of them.
              Policy "ignore": all but the classes below a terminal label, since a row labeled
              only 'dog' says nothing of breeds. A row without labels is labeled by the root
              alone, so under "ignore" nothing about it is known.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from hierlearn.errors import DataError, HierlearnError, LabelError, arg, unknown_name
from hierlearn.hierarchy.hierarchy import Hierarchy
from hierlearn.hierarchy.names import as_rows, is_missing
from hierlearn.hierarchy.structure import Immutable, expand_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy.names import Label
    from hierlearn.hierarchy.structure import Ints
    from hierlearn.kernels.tree_layout import TreeLayout

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


class Labels(Immutable):
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
    sets: tuple[Ints, Ints]  # CSR: offsets, class numbers; of every row, or of the sets they share
    of_row: NDArray[np.int32] | None  # (N,) the number of the set of each row; None for its own

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
                    f"value of {arg('unlabeled_descendants')}",
                    str(unlabeled_descendants),
                    get_args(UnlabeledDescendants),
                )
            )
        if not isinstance(rows, (str, bytes)):  # look_up words what is wrong with one text
            rows = as_rows(rows, hierarchy.sep)
            rows = (None if has_no_label(row) else row for row in rows)
        vars(self).update(
            hierarchy=hierarchy,
            unlabeled_descendants=unlabeled_descendants,
            sets=hierarchy.look_up(rows, numbers=numbers),
            of_row=None,
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
        sets = (np.asarray(offsets, dtype=np.int64), np.asarray(numbers, dtype=np.int64))
        vars(new).update(sets=sets)
        return new

    def __len__(self) -> int:
        return len(self.sets[0]) - 1 if self.of_row is None else len(self.of_row)

    def __repr__(self) -> str:
        policy = f"unlabeled_descendants={self.unlabeled_descendants!r}"
        return f"Labels({len(self)} rows, {self.hierarchy!r}, {policy})"

    @cached_property
    def closed_sets(self) -> tuple[Ints, Ints]:
        """CSR (offsets, class numbers): the sets with all ancestors."""
        return self.hierarchy.close(*self.sets)

    @cached_property
    def terminal_sets(self) -> tuple[Ints, Ints]:
        """CSR (offsets, class numbers): the most specific classes of each set."""
        offsets, numbers = self.closed_sets
        count = len(offsets) - 1
        sets = np.repeat(np.arange(count), np.diff(offsets))
        keep = self.hierarchy.most_specific(sets, numbers)
        sizes = np.bincount(sets[keep], minlength=count)
        return np.concatenate([[0], np.cumsum(sizes)]), numbers[keep]

    @cached_property
    def annotated(self) -> tuple[Ints, Ints]:
        """CSR (offsets, class numbers): the annotated classes of each row."""
        return self._of_rows(self.sets)

    @cached_property
    def closed(self) -> tuple[Ints, Ints]:
        """CSR (offsets, class numbers): the annotated classes of each row with all ancestors."""
        return self._of_rows(self.closed_sets)

    @cached_property
    def terminal(self) -> tuple[Ints, Ints]:
        """CSR (offsets, class numbers): the most specific classes of each row."""
        return self._of_rows(self.terminal_sets)

    def _of_rows(self, csr: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
        if self.of_row is None:
            return csr
        offsets, numbers = csr
        positions, counts = expand_ranges(offsets, self.of_row.astype(np.int64))
        return np.concatenate([[0], np.cumsum(counts)]), numbers[positions]

    @cached_property
    def terminal_classes(self) -> Ints:
        """The terminal classes of these rows: the leaves, and inner classes that end a row."""
        return np.union1d(self.hierarchy.leaves, self.terminal_sets[1])

    @cached_property
    def counts(self) -> Ints:
        """(C,) the number of rows of each class, descendants' rows included."""
        return self.weighted_counts()[0].astype(np.int64)

    @property
    def terminal_counts(self) -> Ints:
        """(N,) how many terminal classes each row has."""
        counts = np.diff(self.terminal_sets[0])
        return counts if self.of_row is None else counts[self.of_row]

    def weighted_counts(
        self, weights: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the summed weights of the rows of each class, closed and most specific.

        Args:
            weights: (N,) of the rows; None counts each as 1.
        """
        count = len(self.sets[0]) - 1
        if self.of_row is not None:
            of_sets = np.bincount(self.of_row, weights, count).astype(np.float64)
        else:
            of_sets = np.ones(count) if weights is None else weights
        closed, terminal = (
            np.bincount(numbers, np.repeat(of_sets, np.diff(offsets)), len(self.hierarchy))
            for offsets, numbers in (self.closed_sets, self.terminal_sets)
        )
        return closed.astype(np.float64), terminal.astype(np.float64)

    def identity(self) -> list[NDArray[Any]]:
        """Return the arrays by which a resumed training recognizes its labels."""
        return [*self.sets] if self.of_row is None else [*self.sets, self.of_row]

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
        return self._dense(self.closed_sets, self._sets_of(rows))

    def mask(self, rows: Rows | None = None) -> Tensor:
        """Return (N, C) bool: which entries of the given rows are known."""
        import torch

        picked = self._sets_of(rows)
        if self.unlabeled_descendants == "negative":
            return torch.ones((len(picked), len(self.hierarchy)), dtype=torch.bool)
        terminal = self._dense(self.terminal_sets, picked)
        covered = self.hierarchy.max_down(terminal.to(torch.uint8)).bool()
        unlabeled = torch.from_numpy(np.diff(self.closed_sets[0])[picked] == 0)
        return ~(covered | unlabeled[:, None]) | self._dense(self.closed_sets, picked)

    def _sets_of(self, rows: Rows | None) -> Ints:
        numbers = row_numbers(rows, len(self))
        return numbers if self.of_row is None else self.of_row[numbers].astype(np.int64)

    def _dense(self, csr: tuple[Ints, Ints], picked: Ints) -> Tensor:
        import torch

        offsets, numbers = csr
        positions, counts = expand_ranges(offsets, picked)
        flat = np.repeat(np.arange(len(picked)) * len(self.hierarchy), counts) + numbers[positions]
        dense = torch.zeros((len(picked), len(self.hierarchy)), dtype=torch.bool)
        return dense.view(-1).index_fill_(0, torch.from_numpy(flat), True).view_as(dense)


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
            vars(sets).update(of_row=of_row)
            return sets
    return Labels(rows, hierarchy, unlabeled_descendants=unlabeled_descendants)


# ----------------------------------------------------------------------
# LabelSpace: what can be predicted, a hierarchy together with its terminal classes.
#
#     terminal classes   the leaves, and the inner classes that occur as a most specific label
#
# Wherever a label space is expected, a ``Hierarchy`` is accepted and means that only the leaves are
# terminal.


class LabelSpace(Immutable):
    """An immutable hierarchy with its terminal classes.

    Args:
        hierarchy: the taxonomy.
        terminals: the inner classes that are terminal; the leaves always are, named or not.

    Attributes:
        hierarchy: the taxonomy.
        terminals: (T,) the class numbers of all terminal classes, ascending.

    Example:
        >>> h = Hierarchy.from_paths(["dog/pug", "cat"])
        >>> LabelSpace(h).terminal_names
        ('cat', 'dog/pug')
        >>> LabelSpace(h, ["dog"]).terminal_names
        ('cat', 'dog', 'dog/pug')
    """

    hierarchy: Hierarchy
    terminals: Ints

    def __init__(self, hierarchy: Hierarchy, terminals: Iterable[Label] | None = None) -> None:
        if not isinstance(hierarchy, Hierarchy):
            raise HierlearnError(
                f"a label space is made of a Hierarchy, not {type(hierarchy).__name__}; "
                f"build one with Hierarchy.from_paths"
            )
        if isinstance(terminals, str):
            raise HierlearnError(f"terminals is a list of classes, not the text {terminals!r}")
        named = () if terminals is None else terminals
        numbers = np.array([hierarchy.index(label) for label in named], dtype=np.int64)
        found = np.union1d(hierarchy.leaves, numbers)
        found.flags.writeable = False
        vars(self).update(hierarchy=hierarchy, terminals=found)

    @classmethod
    def of(cls, space: LabelSpace | Hierarchy) -> LabelSpace:
        """Return a label space as it is; of a hierarchy, the one whose terminals are the leaves."""
        return space if isinstance(space, LabelSpace) else cls(space)

    @classmethod
    def from_labels(cls, labels: Labels, also: Iterable[Label] = ()) -> LabelSpace:
        """Return the label space of training labels.

        Where the labels say nothing of what lies below them (``unlabeled_descendants="ignore"``),
        every row ends at a leaf that nobody named, so only the leaves are terminal.

        Args:
            labels: the labels of the training rows.
            also: classes that are terminal although no training row ends there.
        """
        if labels.unlabeled_descendants == "ignore":
            return cls(labels.hierarchy)
        return cls(labels.hierarchy, [*labels.terminal_classes.tolist(), *also])

    @classmethod
    def from_targets(cls, hierarchy: Hierarchy, targets: Tensor) -> LabelSpace:
        """Return the label space in which every row of closed targets can be predicted.

        Args:
            hierarchy: the taxonomy.
            targets: (N, C) closed multi-hot.
        """
        rows, numbers = (part.cpu().numpy() for part in (targets != 0).nonzero(as_tuple=True))
        return cls(hierarchy, np.unique(numbers[hierarchy.most_specific(rows, numbers)]).tolist())

    @cached_property
    def is_terminal(self) -> NDArray[np.bool_]:
        """(C,) whether each class is terminal."""
        flags = np.zeros(len(self.hierarchy), dtype=bool)
        flags[self.terminals] = True
        return flags

    @cached_property
    def layout(self) -> TreeLayout | None:
        """The tree as fused kernels read it; None for a DAG, and for trees that are too deep."""
        from hierlearn.kernels.tree_layout import MAX_LEVELS, TreeLayout

        structure = self.hierarchy.structure
        if not structure.is_tree or not 0 < structure.depth <= MAX_LEVELS:
            return None
        return TreeLayout(structure.first_parents, structure.level_offsets, self.is_terminal)

    @property
    def has_inner_terminals(self) -> bool:
        """Whether an inner class is terminal."""
        return len(self.terminals) > len(self.hierarchy.leaves)

    @property
    def terminal_names(self) -> tuple[str, ...]:
        """The names of the terminal classes."""
        return tuple(self.hierarchy.names[number] for number in self.terminals)

    def terminal_ids(self, device: Any = None) -> Tensor:
        """Return (T,) the class numbers of the terminal classes as a tensor."""
        import torch

        return torch.tensor(self.terminals, device=device)

    def __len__(self) -> int:
        return len(self.hierarchy)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelSpace):
            return NotImplemented
        same = self.hierarchy == other.hierarchy
        return same and np.array_equal(self.terminals, other.terminals)

    def __hash__(self) -> int:
        return hash((self.hierarchy, self.terminals.tobytes()))

    def __repr__(self) -> str:
        return f"LabelSpace({self.hierarchy!r}, {len(self.terminals):,} terminal classes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return LabelSpace, (self.hierarchy, self.terminals.tolist())
