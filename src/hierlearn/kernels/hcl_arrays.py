"""The arrays that the kernels of HCL use besides the batch, and properties of the device."""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

FLOAT, DOUBLE, INT, BYTE = torch.float32, torch.float64, torch.int32, torch.uint8


class MemoryLayout:
    """Several arrays in one block of bytes, each aligned to 16."""

    def __init__(self, **arrays: tuple[torch.dtype, int]) -> None:
        self.entries: dict[str, tuple[int, int, torch.dtype]] = {}  # offset, bytes, dtype
        self.size = 0
        for name, (dtype, count) in arrays.items():
            self.entries[name] = (self.size, count * dtype.itemsize, dtype)
            self.size += -(-count * dtype.itemsize // 16) * 16

    def array(self, block: Tensor, name: str) -> Tensor:
        """Return one array as a tensor."""
        begin, size, dtype = self.entries[name]
        return block[begin : begin + size].view(dtype)

    def arrays(self, block: Tensor) -> dict[str, Tensor]:
        """Return all arrays by name."""
        return {name: self.array(block, name) for name in self.entries}


@lru_cache(maxsize=256)
def level_bounds(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Return (L + 1,) the first class of each level, then C."""
    begins = [0]
    for size in sizes:
        begins.append(begins[-1] + size)
    with torch.inference_mode(False):
        return torch.tensor(begins, dtype=INT, device=device)


@lru_cache(maxsize=256)
def level_tiles(sizes: tuple[int, ...], columns: int, device: torch.device) -> Tensor:
    """Return (T, 2) the level and the number of every tile; two levels may share a tile."""
    pairs, begin = [], 0
    for level, size in enumerate(sizes):
        first, last = begin // columns, (begin + size - 1) // columns
        pairs += [(level, number) for number in range(first, last + 1)]
        begin += size
    with torch.inference_mode(False):
        return torch.tensor(pairs, dtype=INT, device=device)


@lru_cache(maxsize=16)
def scalar_one(device: torch.device) -> Tensor:
    """Return the float32 scalar 1 on a device."""
    with torch.inference_mode(False):
        return torch.ones((), dtype=FLOAT, device=device)


@lru_cache(maxsize=16)
def multiprocessors(device: torch.device) -> int:
    """Return the number of multiprocessors."""
    if device.type != "cuda":
        return 2  # the interpreter has none; this shapes its grids
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def device_context(device: torch.device) -> Any:
    """Return a context manager that makes a device the current one."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return NO_CONTEXT
    return torch.cuda.device(device)


NO_CONTEXT = nullcontext()
# The functions behind torch.cuda.current_stream and current_device; absent without CUDA.
current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
current_device: Any = getattr(torch._C, "_cuda_getDevice", None)


def next_power_of_2(number: int) -> int:
    """Return the smallest power of 2 that is at least ``number``."""
    return 1 << max(number - 1, 0).bit_length()


def ceil_div(whole: int, size: int) -> int:
    """Return whole / size, rounded up."""
    return -(-whole // size)
