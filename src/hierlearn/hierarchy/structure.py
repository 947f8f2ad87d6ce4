"""The bare structure of a hierarchy: CSR parent lists in level order, levels, heights, closures.

Nothing here knows names or tensors; everything is numpy over whole levels, never over nodes.

    level(c)  = 1 + max over parents p of level(p),   1 for a top class
    height(c) = 1 + max over children k of height(k), 0 for a leaf
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn
from weakref import WeakValueDictionary

import numpy as np

from hierlearn.hierarchy.names import check_depth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.hierarchy.hierarchy import Hierarchy

    Ints = NDArray[np.int64]

CHUNK = 2**22  # elements of one temporary: 16 MiB in float32


class Immutable:
    """Base of what never changes: no attribute can be set, and copies are the object itself."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; {name} cannot be deleted")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self


def frozen(array: Ints) -> Ints:
    """Mark an array read-only and return it."""
    array.flags.writeable = False
    return array


def expand_ranges(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return, for CSR ``offsets``, the positions of all entries of ``rows`` and their counts."""
    counts = offsets[rows + 1] - offsets[rows]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    positions = np.arange(total) - np.repeat(ends - counts - offsets[rows], counts)
    return positions, counts


def csr_from_pairs(rows: Ints, values: Ints, count: int) -> tuple[Ints, Ints]:
    """Group ``values`` by ``rows``; within a row they are ascending."""
    order = np.lexsort((values, rows))
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return offsets, values[order]


class Cycle(Exception):  # noqa: N818  a signal for the builder, which words the error
    """The edges hold a cycle; ``nodes`` lists it from parent to child."""

    def __init__(self, nodes: list[int]) -> None:
        super().__init__(nodes)
        self.nodes = nodes


NUMBERS = itertools.count()


STRUCTURES: WeakValueDictionary[str, Structure] = WeakValueDictionary()  # by key


@dataclass(frozen=True)
class Structure:
    """CSR parent lists of C classes in level order, and what follows from them."""

    if TYPE_CHECKING:
        key: ClassVar[str]  # of each structure; not a field
        device_cache: ClassVar[dict[Any, Any]]

    parent_offsets: Ints  # (C + 1,)
    parent_ids: Ints  # (E,)
    level_offsets: Ints  # (L + 1,): level m is the slice level_offsets[m - 1] : level_offsets[m]

    def __post_init__(self) -> None:
        # The name by which compiled code refers to the structure, and what devices keep of it.
        vars(self).update(key=f"structure {next(NUMBERS)}", device_cache={})
        STRUCTURES[self.key] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return Structure, (self.parent_offsets, self.parent_ids, self.level_offsets)

    @property
    def count(self) -> int:
        """C, the number of classes."""
        return len(self.parent_offsets) - 1

    @property
    def depth(self) -> int:
        """L, the number of levels."""
        return len(self.level_offsets) - 1

    @cached_property
    def is_tree(self) -> bool:
        """Whether no class has more than one parent."""
        return bool(np.all(np.diff(self.parent_offsets) <= 1))

    @cached_property
    def levels(self) -> Ints:
        """(C,) the level of each class, 1 at the top."""
        sizes = np.diff(self.level_offsets)
        return frozen(np.repeat(np.arange(1, self.depth + 1), sizes))

    @cached_property
    def edge_children(self) -> Ints:
        """(E,) the child of each entry of ``parent_ids``."""
        return frozen(np.repeat(np.arange(self.count), np.diff(self.parent_offsets)))

    @cached_property
    def children(self) -> tuple[Ints, Ints]:
        """CSR child lists (offsets, ids)."""
        offsets, ids = csr_from_pairs(self.parent_ids, self.edge_children, self.count)
        return frozen(offsets), frozen(ids)

    @cached_property
    def heights(self) -> Ints:
        """(C,) the longest path down to a leaf; 0 for a leaf."""
        offsets, ids = self.children
        heights = np.zeros(self.count, dtype=np.int64)
        # Children lie at deeper levels only, so one sweep from the bottom sees final values.
        for level in range(self.depth - 1, -1, -1):
            nodes = np.arange(self.level_offsets[level], self.level_offsets[level + 1])
            nodes = nodes[offsets[nodes + 1] > offsets[nodes]]
            if len(nodes):
                begin, end = offsets[nodes[0]], offsets[nodes[-1] + 1]
                heights[nodes] = 1 + np.maximum.reduceat(
                    heights[ids[begin:end]], offsets[nodes] - begin
                )
        return frozen(heights)

    def has_edge(self, parent: int, child: int) -> bool:
        """Whether ``parent`` is a parent of ``child``."""
        above = self.parent_ids[self.parent_offsets[child] : self.parent_offsets[child + 1]]
        return parent in above

    @property
    def parent_lists(self) -> list[list[int]]:
        """The numbers of each class's parents."""
        flat, offsets = self.parent_ids.tolist(), self.parent_offsets.tolist()
        return [flat[a:b] for a, b in pairwise(offsets)]

    @cached_property
    def first_parents(self) -> Ints:
        """(C,) the first parent of each class, -1 at the top: the parent array of a tree."""
        first = np.full(self.count, -1, dtype=np.int64)
        below = np.flatnonzero(np.diff(self.parent_offsets))
        first[below] = self.parent_ids[self.parent_offsets[below]]
        return frozen(first)

    @cached_property
    def closure(self) -> tuple[Ints, Ints]:
        """CSR lists (offsets, ids) of every class with all its ancestors, ascending."""
        offsets = np.zeros(self.count + 1, dtype=np.int64)
        flat = np.zeros(2 * self.count, dtype=np.int64)
        for begin, end in pairwise(self.level_offsets.tolist()):
            nodes = np.arange(begin, end)
            edges, fan_in = expand_ranges(self.parent_offsets, nodes)
            positions, sizes = expand_ranges(offsets, self.parent_ids[edges])
            rows = np.concatenate([np.repeat(np.repeat(nodes, fan_in), sizes), nodes])
            keys = rows * self.count + np.concatenate([flat[positions], nodes])
            # Two parents may share ancestors; in a tree nothing can repeat.
            keys = np.sort(keys) if self.is_tree else np.unique(keys)
            counts = np.bincount(keys // self.count - begin, minlength=end - begin)
            offsets[begin + 1 : end + 1] = offsets[begin] + np.cumsum(counts)
            if offsets[end] > len(flat):
                flat = np.resize(flat, 2 * int(offsets[end]))
            flat[offsets[begin] : offsets[end]] = keys % self.count
        return frozen(offsets), frozen(flat[: offsets[-1]].copy())

    def close(self, offsets: Ints, numbers: Ints) -> tuple[Ints, Ints]:
        """Close CSR rows of class numbers under ancestors, without repeats, ascending."""
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        closure_offsets, ids = self.closure
        positions, sizes = expand_ranges(closure_offsets, numbers)
        keys = np.repeat(rows, sizes) * self.count + ids[positions]
        if len(keys) and not np.all(keys[1:] > keys[:-1]):  # one label per row is sorted already
            keys = np.unique(keys)
        closed = np.searchsorted(keys, np.arange(len(offsets)) * self.count)
        return closed, keys % self.count


def arrange(child: Ints, parent: Ints, count: int, rank: Ints) -> tuple[Structure, Ints]:
    """Put ``count`` nodes into level order, siblings together, ties by ``rank``.

    Args:
        child: (E,) the lower end of each edge, in the caller's numbering.
        parent: (E,) the upper end.
        count: C, the number of nodes.
        rank: (C,) the order of the nodes' names.

    Returns:
        The structure, and ``order``: the caller's number of each class.

    Raises:
        Cycle: if the edges hold one.
    """
    child_offsets, child_ids = csr_from_pairs(parent, child, count)
    parent_offsets, parent_ids = csr_from_pairs(child, parent, count)
    waiting = np.diff(parent_offsets)
    position = np.full(count, -1, dtype=np.int64)
    wave = np.flatnonzero(waiting == 0)
    wave = wave[np.argsort(rank[wave], kind="stable")]
    waves: list[Ints] = []
    placed = 0
    # A node joins the wave after its last parent's: its level is the longest path from the root.
    while len(wave):
        position[wave] = np.arange(placed, placed + len(wave))
        placed += len(wave)
        waves.append(wave)
        check_depth(len(waves))
        edges, _ = expand_ranges(child_offsets, wave)
        below = child_ids[edges]
        np.subtract.at(waiting, below, 1)
        ready = np.unique(below[waiting[below] == 0])
        if not len(ready):
            break
        edges, counts = expand_ranges(parent_offsets, ready)
        first = np.minimum.reduceat(position[parent_ids[edges]], np.cumsum(counts) - counts)
        wave = ready[np.lexsort((rank[ready], first))]
    if placed < count:
        cycle = find_cycle(parent_offsets, parent_ids, position)
        first_named = min(range(len(cycle)), key=lambda place: rank[cycle[place]])
        raise Cycle(cycle[first_named:] + cycle[:first_named])
    order = np.concatenate(waves) if waves else np.zeros(0, dtype=np.int64)
    offsets, ids = csr_from_pairs(position[child], position[parent], count)
    level_offsets = np.concatenate([[0], np.cumsum([len(wave) for wave in waves])])
    structure = Structure(frozen(offsets), frozen(ids), frozen(level_offsets.astype(np.int64)))
    return structure, order


def find_cycle(parent_offsets: Ints, parent_ids: Ints, position: Ints) -> list[int]:
    """Return one cycle among the nodes without a position, from parent to child."""
    node = int(np.flatnonzero(position < 0)[0])
    seen: dict[int, int] = {}
    walk: list[int] = []
    # Every unplaced node waits for an unplaced parent, so the walk upward must repeat.
    while node not in seen:
        seen[node] = len(walk)
        walk.append(node)
        above = parent_ids[parent_offsets[node] : parent_offsets[node + 1]]
        node = int(above[position[above] < 0][0])
    return walk[seen[node] :][::-1]


# ---------------------------------------- Lowest common ancestors of whole arrays of pairs
#
# Tree: of two classes that differ, the later one in class order is at least as deep, so it is
# replaced by its parent until both are the same.
#
# DAG: among the common ancestors, each class counting as its own, the one of smallest height; of
# those the deepest, then the first in class order. No table grows as C x C.
#
# The implicit root is -1.


def tree_lcas(structure: Structure, a: Ints, b: Ints) -> Ints:
    """Return the lowest common ancestor of each pair of classes of a tree."""
    parents = np.append(structure.first_parents, -1)
    found: Ints = a.copy()
    rows = np.arange(len(a))
    while len(rows):
        apart = a != b
        found[rows[~apart]] = a[~apart]
        rows, a, b = rows[apart], a[apart], b[apart]
        a, b = parents[np.maximum(a, b)], np.minimum(a, b)
    return found


def dag_lcas(structure: Structure, a: Ints, b: Ints) -> Ints:
    """Return the chosen common ancestor of each pair of classes: what two closures share."""
    offsets, ids = structure.closure
    count = structure.count
    # One number that orders by height, then depth, then class; the smallest is the answer.
    order = np.lexsort((-structure.levels, structure.heights))
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    keys = []
    for side in (a, b):
        positions, sizes = expand_ranges(offsets, side)
        keys.append(np.repeat(np.arange(len(a)), sizes) * count + rank[ids[positions]])
    both = np.sort(np.concatenate(keys))
    shared = both[1:][both[1:] == both[:-1]]
    best = np.full(len(a), count, dtype=np.int64)
    np.minimum.at(best, shared // count, shared % count)
    return np.append(order, -1)[best]


# ----------------------------------------------------------------------
# Row chunks: (N, C) work done a few rows at a time, so that temporaries stay small for any N.


def row_chunks(count: int, width: int) -> Iterator[slice]:
    """Yield slices over ``count`` rows of ``width`` elements; one empty slice for no rows."""
    step = max(1, CHUNK // max(1, width))
    for begin in range(0, max(1, count), step):
        yield slice(begin, min(begin + step, count))


def row_width(hierarchy: Hierarchy) -> int:
    """Return the elements per row of a sum along the hierarchy: C, or the closure of a DAG."""
    if hierarchy.is_tree:
        return len(hierarchy)
    return len(hierarchy.structure.closure[1])
