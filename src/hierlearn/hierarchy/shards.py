"""Shards: a hierarchy cut into parts of nearly equal size, by whole subtrees.

    top         the classes above a cut; every shard has them
    own         the classes of one shard alone: whole subtrees below the top
    stand-in    one leaf of a shard for all classes of other shards below the same top classes

Classes in depth-first order are cut into stretches of equal length. The top is the smallest set
that is closed under ancestors and holds the upper end of every edge between two stretches. So
whatever lies above a class is in its shard. In a tree the top has at most (shards - 1) * (levels -
1) classes, and what is left of a stretch is a forest of whole subtrees. In a DAG the depth-first
order follows first parents, and other parents in another stretch join the top.

A shard with stand-ins is a hierarchy of its own, in which sums, maxima and the softmax of a class
are those of the whole, once the stand-ins have the values of the classes that they stand for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import HierlearnError, plural
from hierlearn.hierarchy.aliases import NO_TARGETS
from hierlearn.hierarchy.hierarchy import Hierarchy
from hierlearn.hierarchy.label_space import LabelSpace
from hierlearn.hierarchy.structure import arrange, expand_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy.structure import Ints, Structure

TOP = -1  # the owner of a class that every shard has


@dataclass(frozen=True)
class Shards:
    """A label space cut into parts.

    Attributes:
        label_space: what is cut.
        world: how many shards there are.
        owner: (C,) the shard of each class; TOP for the top.
        group: (C,) the number of the group of each class that is not in the top, else -1. Classes
            below the same top classes are a group, whatever their shard.
        group_parents: the top classes right above each group; none for those under the root.
    """

    label_space: LabelSpace
    world: int
    owner: Ints
    group: Ints
    group_parents: tuple[Ints, ...]

    @property
    def top(self) -> Ints:
        """The classes that every shard has, ascending."""
        return np.flatnonzero(self.owner == TOP)

    def shard(self, rank: int) -> Shard:
        """Return one of the shards."""
        return Shard(self, rank)

    @cached_property
    def outline(self) -> Outline:
        """The top with two leaves for each group: its classes of one shard, and all others."""
        top = Shard(self, TOP)
        groups = [*self.group_parents, *self.group_parents]
        structure, order = top.with_leaves(groups)
        columns = np.argsort(order)
        real, leaves = columns[: len(self.top)], columns[len(self.top) :]
        half = len(self.group_parents)
        return Outline(top.terminals_of(structure, real), real, leaves[:half], leaves[half:])


@dataclass(frozen=True)
class Outline:
    """The top of a hierarchy, in which a few leaves stand for all that lies below.

    Attributes:
        label_space: top classes and leaves.
        top: (T,) the columns of the top classes.
        here: (G,) the columns of the leaves for what one shard has of each group.
        elsewhere: (G,) the columns of the leaves for what the others have of each group.
    """

    label_space: LabelSpace
    top: Ints
    here: Ints
    elsewhere: Ints


@dataclass(frozen=True)
class Shard:
    """One part of a label space.

    Attributes:
        shards: all of them.
        rank: which one this is.
    """

    shards: Shards
    rank: int

    @cached_property
    def classes(self) -> Ints:
        """(S,) the numbers of its classes in the whole hierarchy, ascending."""
        owner = self.shards.owner
        return np.flatnonzero((owner == TOP) | (owner == self.rank))

    @cached_property
    def is_top(self) -> NDArray[np.bool_]:
        """(S,) which of its classes every shard has."""
        flags: NDArray[np.bool_] = self.shards.owner[self.classes] == TOP
        return flags

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """(S,) which of its classes count here: its own, and in the first shard the top."""
        return ~self.is_top if self.rank else np.ones(len(self.classes), dtype=bool)

    @cached_property
    def groups(self) -> Ints:
        """(S,) the group of each of its own classes, -1 for the top."""
        return self.shards.group[self.classes]

    @cached_property
    def levels(self) -> Ints:
        """(S,) the level of each class in the whole hierarchy, which is its level here, too."""
        return self.shards.label_space.hierarchy.levels[self.classes]

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """Its classes as a hierarchy without names, in the order of ``classes``."""
        child, parent = self._edges()
        structure, _ = arrange(child, parent, len(self.classes), np.arange(len(self.classes)))
        return unnamed(structure)

    @cached_property
    def stand_ins(self) -> Ints:
        """(K,) the groups that have classes in other shards."""
        elsewhere = (self.shards.owner != TOP) & (self.shards.owner != self.rank)
        return np.unique(self.shards.group[elsewhere])

    @cached_property
    def _extended(self) -> tuple[Structure, Ints]:
        """The structure with stand-ins, and which of classes and stand-ins each column is."""
        return self.with_leaves([self.shards.group_parents[group] for group in self.stand_ins])

    def with_leaves(self, parents: Sequence[Ints]) -> tuple[Structure, Ints]:
        """Return its classes with more leaves below some of them, and the order of all these."""
        child, parent = self._edges()
        count = len(self.classes)
        ends = [(child, parent)]
        for number, above in enumerate(parents):
            places = np.searchsorted(self.classes, above)
            ends.append((np.full(len(places), count + number), places))
        child, parent = (np.concatenate(part) for part in zip(*ends, strict=True))
        total = count + len(parents)
        return arrange(child, parent, total, np.arange(total))

    @cached_property
    def columns(self) -> tuple[Ints, Ints]:
        """The columns of the S classes, and of the K stand-ins, in ``extended``."""
        back = np.argsort(self._extended[1])
        return back[: len(self.classes)], back[len(self.classes) :]

    @cached_property
    def extended(self) -> LabelSpace:
        """Classes and stand-ins; a stand-in is a leaf, and the terminals are those of the whole."""
        return self.terminals_of(self._extended[0], self.columns[0])

    @cached_property
    def label_space(self) -> LabelSpace:
        """Its classes without names; a class whose descendants are all elsewhere is a leaf."""
        return LabelSpace(self.hierarchy)

    def terminals_of(self, structure: Structure, columns: Ints) -> LabelSpace:
        """Return the label space of a structure that holds its classes in some columns."""
        hierarchy = unnamed(structure)
        found = columns[self.shards.label_space.is_terminal[self.classes]]
        return LabelSpace(hierarchy, found[hierarchy.heights[found] > 0].tolist())

    def _edges(self) -> tuple[Ints, Ints]:
        """Return the edges among its classes; all edges above them are."""
        structure = self.shards.label_space.hierarchy.structure
        positions, counts = expand_ranges(structure.parent_offsets, self.classes)
        child = np.repeat(np.arange(len(self.classes)), counts)
        return child, np.searchsorted(self.classes, structure.parent_ids[positions])

    def __repr__(self) -> str:
        top = int(self.is_top.sum())
        size = f"{len(self.classes):,} classes, {top:,} of them in all shards"
        return f"Shard({self.rank} of {self.shards.world}, {size})"


def cut(space: LabelSpace | Hierarchy, world: int) -> Shards:
    """Cut a hierarchy into ``world`` shards of nearly equal size.

    Args:
        space: what can be predicted, or a Hierarchy.
        world: how many shards to make.
    """
    if world < 1:
        raise HierlearnError(f"a hierarchy is cut into at least 1 shard, not {world}")
    label_space = LabelSpace.of(space)
    structure = label_space.hierarchy.structure
    if world > structure.count:
        raise HierlearnError(
            f"{plural(structure.count, 'class', 'classes')} cannot be cut into {world} shards; use "
            f"fewer processes"
        )
    owner = depth_first(structure) * world // structure.count
    child, parent = structure.edge_children, structure.parent_ids
    is_top = np.zeros(structure.count, dtype=bool)
    is_top[parent[owner[child] != owner[parent]]] = True
    for begin, end in reversed([*pairwise(structure.level_offsets.tolist())]):
        edges = slice(structure.parent_offsets[begin], structure.parent_offsets[end])
        is_top[parent[edges][is_top[child[edges]]]] = True
    owner[is_top] = TOP
    group, parents = grouped(structure, is_top)
    return Shards(label_space, world, owner, group, parents)


def depth_first(structure: Structure) -> Ints:
    """Return (C,) the place of each class in depth-first order along first parents."""
    first, levels = structure.first_parents, [*pairwise(structure.level_offsets.tolist())]
    sizes = np.ones(structure.count, dtype=np.int64)
    for begin, end in reversed(levels[1:]):
        np.add.at(sizes, first[begin:end], sizes[begin:end])
    order = np.argsort(first, kind="stable")  # siblings together, the top classes first
    ends = np.cumsum(sizes[order])
    starts = ends - sizes[order]
    above = first[order]
    begins = np.r_[True, above[1:] != above[:-1]]
    before = np.empty(structure.count, dtype=np.int64)  # classes below earlier siblings
    before[order] = starts - np.maximum.accumulate(np.where(begins, starts, 0))
    place: Ints = before.copy()
    for begin, end in levels[1:]:
        place[begin:end] += place[first[begin:end]] + 1
    return place


def grouped(structure: Structure, is_top: NDArray[np.bool_]) -> tuple[Ints, tuple[Ints, ...]]:
    """Return (C,) the group of each class below the top, and the top classes above each group."""
    if structure.is_tree:
        first = structure.first_parents
        anchor = np.full(structure.count, -1, dtype=np.int64)
        for begin, end in [*pairwise(structure.level_offsets.tolist())][1:]:
            above = first[begin:end]
            anchor[begin:end] = np.where(is_top[above], above, anchor[above])
        found, group = np.unique(anchor[~is_top], return_inverse=True)
        parents = tuple(np.array([one] if one >= 0 else [], dtype=np.int64) for one in found)
    else:
        numbers: dict[frozenset[int], int] = {}
        anchors: dict[int, frozenset[int]] = {}
        for number in np.flatnonzero(~is_top).tolist():
            span = structure.parent_offsets[number : number + 2]
            above = structure.parent_ids[span[0] : span[1]].tolist()
            anchors[number] = frozenset[int]().union(
                *({one} if is_top[one] else anchors[one] for one in above)
            )
            numbers.setdefault(anchors[number], len(numbers))
        group = np.array([numbers[one] for one in anchors.values()], dtype=np.int64)
        parents = tuple(np.array(sorted(one), dtype=np.int64) for one in numbers)
    every = np.full(structure.count, -1, dtype=np.int64)
    every[~is_top] = group
    return every, parents


def unnamed(structure: Structure) -> Hierarchy:
    """Return a hierarchy whose classes have no names, which would take more memory than edges."""
    new = object.__new__(Hierarchy)
    vars(new).update(
        structure=structure,
        bare_names=(),
        titles=(),
        sep="/",
        root="root",
        named_by="id",
        namespaces=(),
        aliases=NO_TARGETS,
        pruned=NO_TARGETS,
        obsolete=NO_TARGETS,
    )
    return new
