"""SetTable: the classes of label sets, as the kernels of the neighbor head read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Ints = NDArray[np.int64]

LIGHT = 32  # sets up to which a class is summed by one thread


class TableArrays(NamedTuple):
    """A table on a device; int32."""

    set_offsets: Tensor  # (S + 1,) where the classes of each set begin
    set_classes: Tensor
    class_offsets: Tensor  # (C + 1,) where the sets of each class begin
    class_sets: Tensor
    heavy: Tensor  # the classes of more than LIGHT sets


class SetTable:
    """S label sets of C classes.

    Args:
        offsets: (S + 1,) where the classes of each set begin.
        numbers: the classes, closed under ancestors.
        classes: C.
    """

    def __init__(self, offsets: Ints, numbers: Ints, classes: int) -> None:
        self.sets, self.classes = len(offsets) - 1, classes
        owner = np.repeat(np.arange(self.sets), np.diff(offsets))
        counts = np.bincount(numbers, minlength=classes)
        self.arrays = (
            offsets,
            numbers,
            np.concatenate([[0], np.cumsum(counts)]),
            owner[np.argsort(numbers, kind="stable")],
            np.flatnonzero(counts > LIGHT),
        )
        self.devices: dict[torch.device, TableArrays] = {}

    def on(self, device: torch.device) -> TableArrays:
        """Return the table on a device, copied at first use."""
        if device not in self.devices:
            found = [torch.from_numpy(np.asarray(one, np.int32)).to(device) for one in self.arrays]
            self.devices[device] = TableArrays(*found)
        return self.devices[device]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "devices": {}}
