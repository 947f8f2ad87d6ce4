"""Class indices as targets: (N,) integers, as loaders of flat datasets give them, become (N, C).

    targets(i, j) = 1 where j is the class that index i stands for, or an ancestor of it

An index counts the terminal classes in the hierarchy's order, or stands for the class of its place
in ``class_names``. What is kept per class are its ancestors, not a row of C booleans.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError, LabelError, plural
from hierlearn.hierarchy import LabelSpace
from hierlearn.losses.checks import can_check_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.names import Label


class IndexTable(nn.Module):
    """The classes that indices stand for, with their ancestors.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        class_names: the class that each index stands for; by default the terminal classes in the
            hierarchy's order.

    Example:
        >>> from hierlearn import Hierarchy
        >>> h = Hierarchy.from_paths(["dog/pug", "cat"])
        >>> IndexTable(h, ["pug", "cat"])(torch.tensor([1, 0])).int().tolist()  # cat, dog, dog/pug
        [[1, 0, 0], [0, 1, 1]]
    """

    closures: Tensor  # (K, D) the class of each index and its ancestors; the first one repeats

    def __init__(
        self, label_space: LabelSpace | Hierarchy, class_names: Sequence[Label] | None = None
    ) -> None:
        super().__init__()
        space = LabelSpace.of(label_space)
        hierarchy = space.hierarchy
        self.classes = len(hierarchy)
        self.of_terminals = class_names is None
        rows = space.terminals.tolist() if class_names is None else class_names
        offsets, ids = hierarchy.close(*hierarchy.look_up(rows, numbers=class_names is None))
        counts = np.diff(offsets)
        if not np.all(counts):
            raise LabelError(
                f"class_names has no class for index {int(np.argmin(counts))}; name one class for "
                f"each index"
            )
        places = np.arange(counts.max(initial=0))
        places = np.where(places < counts[:, None], places, 0) + offsets[:-1, None]
        self.register_buffer("closures", torch.from_numpy(ids[places]), persistent=False)

    def __len__(self) -> int:
        return len(self.closures)

    def forward(self, indices: Tensor) -> Tensor:
        """Return (N, C) bool targets, closed under ancestors, of (N,) integer indices."""
        if indices.is_floating_point() or indices.dtype == torch.bool:
            raise HierlearnError(f"class indices are integers, not {indices.dtype}")
        if indices.device.type == "cpu" and can_check_values(indices):
            outside = indices[(indices < 0) | (indices >= len(self))]
            if len(outside):
                what = "terminal class" if self.of_terminals else "class name"
                many = "terminal classes" if self.of_terminals else None
                raise HierlearnError(
                    f"class index {int(outside[0])} is outside 0..{len(self) - 1}, of "
                    f"{plural(len(self), what, many)}"
                )
        closed = self.closures[indices.long()]  # (N, D)
        targets = closed.new_zeros((*indices.shape, self.classes), dtype=torch.bool)
        return targets.scatter_(-1, closed, True)

    def mixtures(self, weights: Tensor) -> Tensor:
        """Return (N, C) targets that mix those of all indices by (N, K) weights that sum to 1."""
        targets = weights.new_zeros((len(weights), self.classes))
        for place, classes in enumerate(self.closures.T):
            own = weights if place == 0 else weights * (classes != self.closures[:, 0])
            targets.index_add_(1, classes, own)
        return targets.clamp_max(1)  # less what rounding adds


def targets_from_indices(
    indices: Tensor,
    label_space: LabelSpace | Hierarchy,
    class_names: Sequence[Label] | None = None,
) -> Tensor:
    """Return the targets of class indices, as losses and metrics take them.

    Args:
        indices: (N,) integers.
        label_space: what can be predicted, or a Hierarchy, whose leaves are then terminal.
        class_names: the class that each index stands for, such as the ``classes`` of a dataset of
            torchvision; by default index k is the k-th terminal class in the hierarchy's order.

    Returns:
        (N, C) bool, closed under ancestors, on the device of the indices.

    Example:
        >>> from hierlearn import Hierarchy
        >>> h = Hierarchy.from_paths(["dog/pug", "cat"])  # its leaves: cat, dog/pug
        >>> targets_from_indices(torch.tensor([1, 0]), h).int().tolist()
        [[0, 1, 1], [1, 0, 0]]
    """
    names = class_names if class_names is None or isinstance(class_names, str) else (*class_names,)
    table: IndexTable = cached_table(LabelSpace.of(label_space), names, indices.device)
    return table(indices)  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def cached_table(
    label_space: LabelSpace, class_names: Sequence[Label] | None, device: torch.device
) -> IndexTable:
    """Return the table on a device, made once."""
    return IndexTable(label_space, class_names).to(device)
