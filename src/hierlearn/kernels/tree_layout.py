"""TreeLayout: a tree as the Triton kernels read it.

Classes are in level order with siblings together, so the children of a class are a range of
columns. What is kept for inner classes only has one column per *slot*: slot 0 is the root above the
top classes, the others are the inner classes in order. A group is the children of one slot;
``tree_windows`` plans how groups are reduced.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.kernels.tree_windows import Reductions, reductions_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

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
