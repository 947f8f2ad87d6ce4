"""Lowest common ancestors of whole arrays of pairs.

Tree: with the classes in preorder, and u before v, the lowest common ancestor of u and v is the
smallest parent (in level order) of the preorder range (u, v]: that range lies below the ancestor
and holds the child of it on v's side. A sparse table answers such a minimum in two look-ups.

DAG: among the common ancestors, each class counting as its own, the one of smallest height; of
those the deepest, then the first in class order. One side's closure is looked up in the other's: in
a table of bits up to 16,384 classes (32 MB), by sorting beyond, so that no table grows as C x C.

The implicit root is -1.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.hierarchy.structure import Structure, expand_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.hierarchy.structure import Ints

PAIRS_AT_ONCE = 1 << 17  # keeps the temporaries of one chunk inside the cache
MOST_BITS = 1 << 14  # classes up to which closures are kept as bits


def preorder(structure: Structure) -> Ints:
    """Return the place of each class of a tree in preorder."""
    parents = structure.first_parents
    sizes = np.ones(structure.count, dtype=np.int64)
    spans = list(pairwise(structure.level_offsets.tolist()))
    for begin, end in reversed(spans[1:]):
        np.add.at(sizes, parents[begin:end], sizes[begin:end])
    places = np.zeros(structure.count, dtype=np.int64)
    for number, (begin, end) in enumerate(spans):
        before = np.cumsum(sizes[begin:end]) - sizes[begin:end]
        if number:
            # Siblings stand together in class order, so what precedes a class among its own
            # is the running total less the total at the first sibling.
            above = parents[begin:end]
            first = np.concatenate([[True], above[1:] != above[:-1]])
            before -= before[first][np.cumsum(first) - 1]
            before += places[above] + 1
        places[begin:end] = before
    return places


class TreeLCA:
    """Constant-time lowest common ancestors in a tree, after O(C log C) preparation."""

    def __init__(self, structure: Structure) -> None:
        self.places = preorder(structure).astype(np.int32)
        parents = np.empty(structure.count, dtype=np.int32)
        parents[self.places] = structure.first_parents
        rows = max(structure.count - 1, 1).bit_length()
        self.table = np.empty((rows, structure.count), dtype=np.int32)
        self.table[0] = parents
        # floor(log2(width)) for every width, so that a query needs no logarithm.
        self.log2 = np.zeros(structure.count + 1, dtype=np.int8)
        for row in range(1, rows):
            self.log2[1 << row :] = row
        for row in range(1, rows):
            half = 1 << (row - 1)
            self.table[row] = self.table[row - 1]
            np.minimum(
                self.table[row - 1, :-half],
                self.table[row - 1, half:],
                out=self.table[row, :-half],
            )

    def __call__(self, a: Ints, b: Ints) -> Ints:
        """Return the lowest common ancestor of each pair, -1 for the root."""
        left, right = self.places[a], self.places[b]
        low, high = np.minimum(left, right) + 1, np.maximum(left, right)
        row = self.log2[high - low + 1]
        # A pair of equal classes has an empty range; any valid place will do, `where` drops it.
        low = np.minimum(low, self.table.shape[1] - 1)
        last = high - (np.int32(1) << row.astype(np.int32)) + 1
        found = np.minimum(self.table[row, low], self.table[row, last])
        return np.where(left == right, a, found).astype(np.int64)


class DagLCA:
    """Common ancestors of smallest height in a DAG, by intersecting sparse closures."""

    def __init__(self, structure: Structure) -> None:
        self.offsets, ids = structure.closure
        # One number that orders by height, then depth, then class; the smallest is the answer.
        order = np.lexsort((-structure.levels, structure.heights))
        rank = np.empty(structure.count, dtype=np.int64)
        rank[order] = np.arange(structure.count)
        self.order = np.append(order, -1)
        self.ranks = rank[ids]  # of the ancestors, class by class
        self.bits: NDArray[np.uint8] | None = None
        if structure.count <= MOST_BITS:
            width = (structure.count + 7) // 8
            rows = np.repeat(np.arange(structure.count), np.diff(self.offsets))
            self.bits = np.zeros(structure.count * width, dtype=np.uint8)
            self.masks = np.left_shift(1, self.ranks & 7).astype(np.uint8)
            np.bitwise_or.at(self.bits, rows * width + (self.ranks >> 3), self.masks)

    def __call__(self, a: Ints, b: Ints) -> Ints:
        """Return the chosen common ancestor of each pair, -1 for the root."""
        if not len(a):
            return np.zeros(0, dtype=np.int64)
        if self.bits is None:
            return self.order[self.by_sorting(a, b)]
        count = len(self.order) - 1
        lengths = np.diff(self.offsets)
        swap = lengths[b] < lengths[a]  # look the shorter closure up in the longer one
        short, long = np.where(swap, b, a), np.where(swap, a, b)
        positions, sizes = expand_ranges(self.offsets, short)
        ranks = self.ranks[positions]
        places = np.repeat(long * ((count + 7) // 8), sizes) + (ranks >> 3)
        ranks = np.where(self.bits[places] & self.masks[positions], ranks, count)
        return self.order[np.minimum.reduceat(ranks, np.cumsum(sizes) - sizes)]

    def by_sorting(self, a: Ints, b: Ints) -> Ints:
        """Return the smallest common rank of each pair without a table."""
        count = len(self.order) - 1
        pairs = np.arange(len(a))
        keys = []
        for side in (a, b):
            positions, sizes = expand_ranges(self.offsets, side)
            keys.append(np.repeat(pairs, sizes) * count + self.ranks[positions])
        both = np.sort(np.concatenate(keys))
        shared = both[1:][both[1:] == both[:-1]]
        best = np.full(len(a), count, dtype=np.int64)
        np.minimum.at(best, shared // count, shared % count)
        return best


def lca(solver: TreeLCA | DagLCA, a: Ints, b: Ints) -> Ints:
    """Apply ``solver`` to flat arrays of pairs in chunks."""
    found = np.empty(len(a), dtype=np.int64)
    for begin in range(0, len(a), PAIRS_AT_ONCE):
        part = slice(begin, begin + PAIRS_AT_ONCE)
        found[part] = solver(a[part], b[part])
    return found
