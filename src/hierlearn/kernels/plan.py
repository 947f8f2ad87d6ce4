"""Plan: launches for tensors of one shape, and the block of memory of their intermediate arrays.

The first call of a part compiles its kernels, later ones replay them with plain addresses.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.kernels.hcl_arrays import (
    BYTE,
    MemoryLayout,
    current_device,
    current_stream,
    device_context,
)

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.kernels.launch import Launch


class Plan:
    """Base of the plans; a subclass sets these attributes and calls ``finish``.

    Attributes:
        device: where the tensors are.
        memory: the intermediate arrays of one call.
        launches: the launches of each part, by its name.
    """

    device: torch.device
    memory: MemoryLayout
    launches: dict[str, list[Launch]]

    def finish(self, constants: dict[str, Tensor]) -> None:
        """Take the arrays that no call changes, and get ready for calls."""
        with torch.inference_mode(False):
            # empty_like is cheaper than empty with its arguments; this holds one byte.
            self.blank = torch.empty(1, dtype=BYTE, device=self.device).expand(self.memory.size)
        self.constants = constants
        self.addresses = [array.data_ptr() for array in self.constants.values()]
        # By names of part and tensors: the offsets of arrays in the block, and for each launch how
        # to pick its pointers among tensors, arrays and addresses.
        self.replays: dict[tuple[str, ...], tuple[list[int], list[tuple[Any, Any]]]] = {}

    def new_block(self) -> Tensor:
        """Return memory for the arrays of one call."""
        return torch.empty_like(self.blank)

    def run(self, names: tuple[str, ...], block: Tensor, tensors: tuple[Tensor, ...]) -> None:
        """Launch a part of the plan.

        Args:
            names: of the part, a key of ``launches``, then of the tensors.
            block: the memory of all arrays that are not among the tensors.
            tensors: in the order of their names, aligned to 16 bytes except logits, targets and
                mask, and ``out`` where it is the memory of the logits.
        """
        replay = self.replays.get(names)
        if replay is None:
            with device_context(self.device):
                self.run_first(names, block, tensors)
            return
        begin, (offsets, launches) = block.data_ptr(), replay
        values = [tensor.data_ptr() for tensor in tensors]
        values += [begin + offset for offset in offsets]
        values += self.addresses
        index = self.device.index
        stream = current_stream(index)
        if index == current_device():
            for launch, pick in launches:
                launch(stream, pick(values))
        else:
            with torch.cuda.device(index):
                for launch, pick in launches:
                    launch(stream, pick(values))

    def run_first(self, names: tuple[str, ...], block: Tensor, tensors: tuple[Tensor, ...]) -> None:
        """Run with tensors, and record how to replay the launches with their addresses."""
        launches = self.launches[names[0]]
        at = {**self.memory.arrays(block), **self.constants}
        for name, tensor in zip(names[1:], tensors, strict=True):
            at[name] = tensor.view(BYTE) if tensor.dtype == torch.bool else tensor
        compiled = [launch.compile_and_run(at) for launch in launches]
        if None in compiled:
            return
        used = {name for launch in launches for name in launch.names} - {*names[1:]}
        own = {name: entry[0] for name, entry in self.memory.entries.items() if name in used}
        order = [*names[1:], *own, *self.constants]
        picks = [itemgetter(*map(order.index, launch.names)) for launch in launches]
        self.replays[names] = (list(own.values()), list(zip(compiled, picks, strict=True)))
