"""A tree as the Triton kernels read it, and how its groups are reduced.

A *window* is a range of at most WINDOW columns that holds whole groups of siblings; each group is
reduced (summed, or its maximum taken) to the slot of its parent. A longer group is divided into
pieces, each with a window and a slot of its own behind the slots of classes, and a later stage
reduces the pieces to the slot of the group.

Classes are in level order with siblings together, so the children of a class are a range of
columns. What is kept for inner classes only has one column per *slot*: slot 0 is the root above the
top classes, the others are the inner classes in order. A group is the children of one slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    from numpy.typing import NDArray


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


MAX_LEVELS = 64  # deeper trees take the plain path


@dataclass(frozen=True, eq=False)
class TreeLayout:
    """A tree of C classes.

    Attributes:
        parents: (C,) the parent of each class, -1 at the top.
        level_offsets: (L + 1,) the first class of each level, then C.
        is_terminal: (C,) whether a row can end at each class; it can at every leaf.
    """

    parents: Ints
    level_offsets: Ints
    is_terminal: NDArray[np.bool_]

    @property
    def classes(self) -> int:
        """C."""
        return len(self.parents)

    @property
    def levels(self) -> int:
        """L."""
        return len(self.level_offsets) - 1

    @cached_property
    def owners(self) -> Ints:
        """(S,) the class of each slot, -1 for the root."""
        inner = np.unique(self.parents[self.parents >= 0])
        return np.concatenate([[-1], inner])

    @property
    def slots(self) -> int:
        """S."""
        return len(self.owners)

    @cached_property
    def slot_of(self) -> Ints:
        """(C,) the slot of each inner class, -1 for a leaf."""
        found = np.full(self.classes, -1, dtype=np.int64)
        found[self.owners[1:]] = np.arange(1, self.slots)
        return found

    @cached_property
    def parent_slots(self) -> Ints:
        """(C,) the slot of each class's parent; ascending."""
        return np.where(self.parents < 0, 0, self.slot_of[self.parents])

    @cached_property
    def sizes(self) -> Ints:
        """(C,) the number of classes at or below each class."""
        found = np.ones(self.classes, dtype=np.int64)
        for begin, end in zip(self.level_offsets[-2:0:-1], self.level_offsets[:1:-1], strict=True):
            np.add.at(found, self.parents[begin:end], found[begin:end])
        return found

    @cached_property
    def slot_bounds(self) -> Ints:
        """(L + 1,) the first slot whose children are in each level, then S."""
        owner_levels = np.searchsorted(self.level_offsets, self.owners, side="right")
        return np.searchsorted(owner_levels, np.arange(self.levels + 1))

    @cached_property
    def reductions(self) -> Reductions:
        """How groups are reduced, from the deepest level up."""
        return reductions_of(self)

    @property
    def width(self) -> int:
        """The number of slots, those of pieces of long groups included."""
        return self.reductions.width

    @cached_property
    def plans(self) -> dict[Any, Any]:
        """The plans of the softmax link, by shape and device."""
        return {}

    @cached_property
    def for_cpu(self) -> dict[str, Any]:
        """What the CPU kernels read, by name; made at first use."""
        return {}

    @cached_property
    def _on_device(self) -> dict[torch.device, dict[str, torch.Tensor]]:
        return {}

    def on(self, device: torch.device) -> dict[str, torch.Tensor]:
        """Return the index arrays on a device by name."""
        if device not in self._on_device:
            with torch.inference_mode(False):
                self._on_device[device] = {
                    name: torch.tensor(array, dtype=torch.int32, device=device)
                    for name, array in self.arrays().items()
                }
                flags = torch.tensor(self.is_terminal, dtype=torch.uint8, device=device)
                self._on_device[device]["terminal"] = flags
        return self._on_device[device]

    def tiles(self, columns: int, device: torch.device) -> dict[str, torch.Tensor]:
        """Return by name the numbers of tiles of columns: of leaves alone, and of the others."""
        found = self.on(device)
        names = f"leaf_tiles_{columns}", f"inner_tiles_{columns}"
        if names[0] not in found:
            begins = np.arange(0, self.classes, columns)
            some = np.add.reduceat(self.slot_of >= 0, begins) > 0
            for name, numbers in zip(names, (~some, some), strict=True):
                with torch.inference_mode(False):
                    tiles = torch.tensor(np.flatnonzero(numbers), dtype=torch.int32, device=device)
                found[name] = tiles
        return {name: found[name] for name in names}

    def arrays(self) -> dict[str, Any]:
        """Return the index arrays by name; by slot means pieces included."""
        plan = self.reductions
        ends = np.flatnonzero(self.is_terminal & (self.slot_of >= 0))
        own = np.full(plan.width, -1, dtype=np.int64)
        own[self.slot_of[ends]] = ends
        children = np.array([plan.children[slot] for slot in range(plan.width)], dtype=np.int64)
        return {
            "first": np.searchsorted(self.parent_slots, np.arange(self.slots + 1)),  # then C
            "owner": self.owners,
            "size": self.sizes,
            "own": own,  # by slot, its class if that is terminal, else -1
            "slot": self.slot_of,
            "parent": self.parent_slots,
            "level": np.repeat(np.arange(self.levels), np.diff(self.level_offsets)),
            "slot_bounds": self.slot_bounds,
            "group": plan.class_groups,
            "piece_group": np.concatenate([np.full(self.slots, -1), plan.piece_groups]),
            "windows": np.array(plan.windows),  # (W, 2)
            "children": children,  # by slot, (., 3): the first item, how many, whether pieces
            "window_of": np.array([plan.window_of[slot] for slot in range(plan.width)]),
        }
