"""The arrays that the kernels of HCL use beside the batch, and what they must know of a device."""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

FLOAT, DOUBLE, INT, BYTE = torch.float32, torch.float64, torch.int32, torch.uint8


class Memory:
    """One block of bytes for several arrays."""

    def __init__(self, **arrays: tuple[torch.dtype, int]) -> None:
        self.places: dict[str, tuple[int, int, torch.dtype]] = {}
        self.size = 0
        for name, (dtype, count) in arrays.items():
            self.places[name] = (self.size, count * dtype.itemsize, dtype)
            self.size += -(-count * dtype.itemsize // 16) * 16  # all begin at multiples of 16

    def array(self, block: Tensor, name: str) -> Tensor:
        """Return one array as a tensor."""
        begin, size, dtype = self.places[name]
        return block[begin : begin + size].view(dtype)

    def arrays(self, block: Tensor) -> dict[str, Tensor]:
        """Return all arrays by name."""
        return {name: self.array(block, name) for name in self.places}


@lru_cache(maxsize=256)
def bounds_on(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Return (L + 1,) where each level begins, and C."""
    begins = [0]
    for size in sizes:
        begins.append(begins[-1] + size)
    with torch.inference_mode(False):
        return torch.tensor(begins, dtype=INT, device=device)


@lru_cache(maxsize=256)
def tiles_on(sizes: tuple[int, ...], columns: int, device: torch.device) -> Tensor:
    """Return (T, 2) the level and the number of every tile; two levels may share one."""
    pairs, begin = [], 0
    for level, size in enumerate(sizes):
        first, last = begin // columns, (begin + size - 1) // columns
        pairs += [(level, number) for number in range(first, last + 1)]
        begin += size
    with torch.inference_mode(False):
        return torch.tensor(pairs, dtype=INT, device=device)


@lru_cache(maxsize=16)
def one_on(device: torch.device) -> Tensor:
    """Return 1 on a device."""
    with torch.inference_mode(False):
        return torch.ones((), dtype=FLOAT, device=device)


@lru_cache(maxsize=16)
def processors(device: torch.device) -> int:
    """Return the number of multiprocessors."""
    if device.type != "cuda":
        return 2  # the interpreter has none; the value shapes its grid
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def on(device: torch.device) -> Any:
    """Return a context in which a device is the current one."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return HERE
    return torch.cuda.device(device)


HERE = nullcontext()
# As torch.cuda has them, but without the objects around; not there without CUDA.
current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
current_device: Any = getattr(torch._C, "_cuda_getDevice", None)


def up_to_power(number: int) -> int:
    """Return the smallest power of 2 that is at least ``number``."""
    return 1 << max(number - 1, 0).bit_length()


def parts_of(whole: int, size: int) -> int:
    """Return how many parts of a size make up the whole."""
    return -(-whole // size)
