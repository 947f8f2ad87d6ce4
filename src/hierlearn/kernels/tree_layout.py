"""TreeLayout: a tree as the Triton kernels read it.

Classes are in level order with siblings together, so the children of a class are a range of
columns. What is kept for inner classes only has one column per *slot*: slot 0 is the root above the
top classes, the others are the inner classes in order. A group is the children of one slot; the
groups of a level are processed together, several in one tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from hierlearn.kernels.hcl_arrays import ceil_div, next_power_of_2

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAX_LEVELS = 64  # deeper trees take the plain path: one launch per level would cost more
THREADS = 128  # slots of a tile of small groups
SMALL_GROUP = 8  # classes up to which a group is small; faster by 1.1 to 2 than 32 on an H200
TILE = 1024  # entries of a tile of larger groups
LONGEST = 4096  # columns that a tile reads at once, at most


class Groups(NamedTuple):
    """How the groups of one level are divided into tiles.

    Attributes:
        first: the first slot.
        number: how many slots.
        slots: per tile.
        columns: of each slot that a tile reads at once.
        tiles: the number of tiles.
        whole: whether no group has more than ``columns`` classes.
        small: whether neighboring threads read different groups.
        leaves: whether no class of these groups has children.
        own: whether a class above these groups is terminal itself.
    """

    first: int
    number: int
    slots: int
    columns: int
    tiles: int
    whole: bool
    small: bool
    leaves: bool
    own: bool


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
    def groups(self) -> tuple[Groups, ...]:
        """The groups of each level, from the top."""
        found = []
        sizes = np.bincount(self.parent_slots, minlength=self.slots)
        for level in range(self.levels):
            first, last = (int(one) for one in self.slot_bounds[level : level + 2])
            here = sizes[first:last]
            most, mean = int(here.max()), float(here.mean())
            columns = next_power_of_2(most)
            if columns > max(16, 4 * mean):  # a few long groups take several steps
                columns = max(16, next_power_of_2(int(2 * mean)))
            columns = min(columns, LONGEST)
            small = columns <= SMALL_GROUP
            slots = THREADS if small else max(1, TILE // columns)
            slots = min(slots, next_power_of_2(last - first))
            nodes = slice(*(int(one) for one in self.level_offsets[level : level + 2]))
            owners = self.owners[first:last]
            found.append(
                Groups(
                    first,
                    last - first,
                    slots,
                    columns,
                    ceil_div(last - first, slots),
                    columns >= most,
                    small,
                    bool((self.slot_of[nodes] < 0).all()),
                    bool(level > 0 and self.is_terminal[owners].any()),
                )
            )
        return tuple(found)

    @property
    def tiles(self) -> int:
        """The number of tiles of groups of all levels."""
        return sum(group.tiles for group in self.groups)

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
            first = np.searchsorted(self.parent_slots, np.arange(self.slots + 1))
            level = np.repeat(np.arange(self.levels), np.diff(self.level_offsets))
            arrays = {
                "first": first,  # (S + 1,) the first child of each slot, then C
                "owner": self.owners,
                "slot": self.slot_of,
                "parent": self.parent_slots,
                "level": level,
                "slot_bounds": self.slot_bounds,
                "size": self.sizes,
            }
            with torch.inference_mode(False):
                self._on_device[device] = {
                    name: torch.tensor(array, dtype=torch.int32, device=device)
                    for name, array in arrays.items()
                }
                flags = torch.tensor(self.is_terminal, dtype=torch.uint8, device=device)
                self._on_device[device]["terminal"] = flags
        return self._on_device[device]
