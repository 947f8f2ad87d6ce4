"""Encoding: labels as closed multi-hot targets, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.nodes import Label, Nodes
from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scipy.sparse import csr_array
    from torch import Tensor

    from hierlearn.hierarchy.structure import Ints


class Encoding(Nodes):
    """The part of a Hierarchy that turns labels into matrices."""

    def close(self, offsets: Ints, numbers: Ints) -> tuple[Ints, Ints]:
        """Close CSR rows of class numbers under ancestors, without repeats, ascending."""
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        closure_offsets, ids = self.structure.closure
        positions, sizes = expand_ranges(closure_offsets, numbers)
        keys = np.repeat(rows, sizes) * len(self) + ids[positions]
        if len(keys) and not np.all(keys[1:] > keys[:-1]):  # one label per row is sorted already
            keys = np.unique(keys)
        closed = np.searchsorted(keys, np.arange(len(offsets)) * len(self))
        return closed, keys % len(self)

    @overload
    def encode(
        self, rows: Iterable[Label | Iterable[Label] | None], *, numbers: bool = False
    ) -> Tensor: ...
    @overload
    def encode(
        self,
        rows: Iterable[Label | Iterable[Label] | None],
        *,
        numbers: bool = False,
        sparse: Literal[True],
    ) -> csr_array: ...
    def encode(
        self,
        rows: Iterable[Label | Iterable[Label] | None],
        *,
        numbers: bool = False,
        sparse: bool = False,
    ) -> Any:
        """Return the closed multi-hot targets of rows of labels.

        Args:
            rows: for each row a label, an iterable of labels or None; a label is a path or an
                unambiguous bare name, at any level. Or a frame or an (N, L) array of names, one
                column per level.
            numbers: integers are class numbers. Otherwise an integer is a name, and raises where
                no class has it, or where it could also be the number of another class.
            sparse: return a SciPy CSR array, for when N x C does not fit.

        Returns:
            (N, C) bool, closed under ancestors.
        """
        offsets, found = self.close(*self.look_up(rows, numbers=numbers))
        shape = (len(offsets) - 1, len(self))
        if sparse:
            from scipy.sparse import csr_array

            return csr_array((np.ones(len(found), dtype=bool), found, offsets), shape=shape)
        import torch

        targets = torch.zeros(shape, dtype=torch.bool)
        flat = np.repeat(np.arange(shape[0]) * shape[1], np.diff(offsets)) + found
        return targets.view(-1).index_fill_(0, torch.from_numpy(flat), True).view(shape)

    def decode(self, targets: Tensor | csr_array, *, terminal: bool = True) -> list[list[str]]:
        """Return the labels of each row of targets.

        Args:
            targets: (N, C) bool tensor, or a SciPy sparse array.
            terminal: name the most specific classes only; otherwise every positive class.
        """
        if tuple(targets.shape[1:]) != (len(self),):
            raise HierlearnError(f"targets {tuple(targets.shape)} must be (N, {len(self)})")
        import torch

        if isinstance(targets, torch.Tensor):
            rows, numbers = (part.numpy() for part in torch.where(targets.cpu() != 0))
        else:
            # SciPy's nonzero leaves out stored zeros; its indices may be unsorted and of 32 bits.
            rows, numbers = (part.astype(np.int64) for part in targets.nonzero())
            order = np.lexsort((numbers, rows))
            rows, numbers = rows[order], numbers[order]
        if terminal:
            keep = self.most_specific(rows, numbers)
            rows, numbers = rows[keep], numbers[keep]
        labels: list[list[str]] = [[] for _ in range(targets.shape[0])]
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            labels[row].append(self.names[number])
        return labels

    def most_specific(self, rows: Ints, numbers: Ints) -> Any:
        """Return which positive entries (row, class) have no positive child in their row."""
        offsets = self.structure.parent_offsets
        edges, fan_in = expand_ranges(offsets, numbers)
        covered = np.repeat(rows, fan_in) * len(self) + self.structure.parent_ids[edges]
        return ~np.isin(rows * len(self) + numbers, covered)
