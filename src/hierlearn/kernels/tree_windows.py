"""Reductions: how the groups of a tree are reduced, level by level, in windows of columns.

A *window* is a range of at most WINDOW columns that holds whole groups of siblings; each group is
reduced (summed, or its maximum taken) to the slot of its parent. A longer group is divided into
pieces, each with a window and a slot of its own behind the slots of classes, and a later stage
reduces the pieces to the slot of the group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.kernels.tree_layout import TreeLayout

    Ints = NDArray[np.int64]

WINDOW = 128  # columns of a window: four for each thread of a warp
ALIGNMENT = 4  # columns that a thread reads at once, at most


class Stage(NamedTuple):
    """One round of reductions.

    Attributes:
        level: of the classes, or of those that the pieces are of.
        pieces: whether the items are pieces, not classes.
        first: the first window.
        number: how many windows.
        items: how many items all windows have.
        inner: whether a class among the items has children.
        own: whether a class above one of the groups is terminal itself.
    """

    level: int
    pieces: bool
    first: int
    number: int
    items: int
    inner: bool
    own: bool


class Groups(NamedTuple):
    """Neighboring groups of items.

    Attributes:
        bounds: the first item of each group, then the one after the last.
        slots: what each group is reduced to.
        pieces: whether the items are pieces, not classes.
    """

    bounds: Ints
    slots: Ints
    pieces: bool


@dataclass
class Reductions:
    """The stages of a tree from the deepest level up, and the arrays that describe them.

    Attributes:
        slots: how many slots of classes there are; pieces follow.
        stages: in the order in which they run.
        windows: the first item of each window, and the one after its last.
        class_groups: (C,) the slot that each class is reduced to.
        piece_groups: the slot that each piece is reduced to.
        children: by slot, pieces included: the first item, how many, and whether they are pieces.
        window_of: by slot, pieces included: the window that reduces to it.
    """

    slots: int
    class_groups: Ints
    stages: list[Stage] = field(default_factory=list)
    windows: list[tuple[int, int]] = field(default_factory=list)
    piece_groups: list[int] = field(default_factory=list)
    children: dict[int, tuple[int, int, bool]] = field(default_factory=dict)
    window_of: dict[int, int] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """How many slots there are, pieces included."""
        return self.slots + len(self.piece_groups)

    def pack(self, groups: Groups) -> Groups | None:
        """Divide groups into windows; return the groups of pieces that this leaves, or None."""
        bounds, before = groups.bounds, self.width
        divided: list[int] = []
        begins: list[int] = []
        place = 0
        while place < len(groups.slots):
            low = int(bounds[place])
            end = int(np.searchsorted(bounds, reach(low), side="right")) - 1
            if end > place:  # whole groups
                for one in range(place, end):
                    self.assign(int(groups.slots[one]), bounds[one : one + 2], groups.pieces)
                self.windows.append((low, int(bounds[end])))
                place = end
                continue
            divided.append(int(groups.slots[place]))
            begins.append(self.width)
            while low < bounds[place + 1]:
                stop = min(int(bounds[place + 1]), reach(low))
                self.piece_groups.append(divided[-1])
                self.assign(self.width - 1, np.array([low, stop]), groups.pieces)
                self.windows.append((low, stop))
                low = stop
            place += 1
        if self.width == before:
            return None
        return Groups(np.array([*begins, self.width]), np.array(divided), pieces=True)

    def assign(self, slot: int, bounds: Ints, pieces: bool) -> None:
        """Let the window that comes next reduce a range of items to a slot."""
        low, high = (int(one) for one in bounds)
        self.children[slot] = (low, high - low, pieces)
        self.window_of[slot] = len(self.windows)
        if pieces:
            self.piece_groups[low - self.slots : high - self.slots] = [slot] * (high - low)
        else:
            self.class_groups[low:high] = slot


def reach(low: int) -> int:
    """Return where a window that begins at an item ends at most; it is read from an aligned one."""
    return low - low % ALIGNMENT + WINDOW


def reductions_of(layout: TreeLayout) -> Reductions:
    """Plan the reductions of a tree."""
    found = Reductions(layout.slots, np.zeros(layout.classes, dtype=np.int64))
    first = np.searchsorted(layout.parent_slots, np.arange(layout.slots + 1))
    for level in reversed(range(layout.levels)):
        begin, end = (int(one) for one in layout.slot_bounds[level : level + 2])
        nodes = slice(*(int(one) for one in layout.level_offsets[level : level + 2]))
        inner = bool((layout.slot_of[nodes] >= 0).any())
        groups: Groups | None = Groups(first[begin : end + 1], np.arange(begin, end), pieces=False)
        while groups is not None:
            window, items = len(found.windows), int(groups.bounds[-1] - groups.bounds[0])
            left = found.pack(groups)
            owners = layout.owners[begin:end]
            own = bool(level > 0 and layout.is_terminal[owners].any())
            number = len(found.windows) - window
            inner = inner and not groups.pieces
            found.stages.append(Stage(level, groups.pieces, window, number, items, inner, own))
            groups = left
    return found
