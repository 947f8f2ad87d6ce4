"""Plans: Triton kernels launched over and over for tensors of one shape, and their memory.

Triton's own launcher inspects every argument to find the compiled variant, which takes tens of
microseconds per launch. A launch plan has settled all of that, so from the second launch on the
compiled variant is called directly, with plain addresses.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from importlib.metadata import version
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    Made = TypeVar("Made")

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


@lru_cache(maxsize=1)
def triton_release() -> tuple[int, ...]:
    """Return the first two numbers of the release of Triton."""
    return tuple(int(part) for part in version("triton").split(".")[:2])


class Launch:
    """One kernel of a plan.

    Every launch must pass tensors of the same dtypes, on the same device, aligned to 16 bytes where
    those of the first launch were.

    Args:
        kernel: the Triton function; its arguments are pointers, then numbers, then constants.
        grid: the number of programs, in one to three dimensions.
        names: the names of the pointers.
        numbers: the numbers.
        constants: the compile-time constants by name, in order.
        options: how Triton compiles it: warps, and possibly a limit on registers.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        names: str,
        numbers: Sequence[float],
        constants: dict[str, Any],
        options: dict[str, int],
    ) -> None:
        self.kernel = kernel
        self.grid = (*grid, 1, 1)[:3]
        self.names = names.split()
        self.numbers = tuple(numbers)
        self.constants = constants
        self.options = options
        self.rest = (*numbers, *constants.values())

    def compile_and_run(self, at: dict[str, Any]) -> Callable[[int, tuple[int, ...]], None] | None:
        """Launch with tensors by name; return a function that replays it with plain addresses."""
        pointers = [at[name] for name in self.names]
        compiled = self.kernel[self.grid](
            *pointers, *self.numbers, **self.constants, **self.options
        )
        # Releases before 3.4 pass the arguments differently; the interpreter compiles nothing.
        if compiled is None or triton_release() < (3, 4):
            return None
        # The same call as Triton's own, without the profiler hooks.
        run, grid, rest = compiled.run, self.grid, self.rest
        handle: tuple[Any, ...] = (compiled.function, compiled.packed_metadata, None, None, None)
        if (
            triton_release() == (3, 6)
            and not run.global_scratch_size
            and not run.profile_scratch_size
        ):
            # What Triton does when there is no scratch memory to allocate.
            options = (run.launch_cooperative_grid, run.launch_pdl, None, None)
            handle, run = (handle[0], *options, *handle[1:]), run.launch

        def replay(stream: int, pointers: tuple[int, ...]) -> None:
            run(*grid, stream, *handle, *pointers, *rest)

        return replay


MAX_PLANS = 64


def cached(plans: dict[Any, Any], key: Any, make: Callable[[], Made]) -> Made:
    """Return the plan of a key, made at first use."""
    found: Made | None = plans.get(key)
    if found is None:
        if len(plans) >= MAX_PLANS:  # the batch size changes all the time
            plans.clear()
        found = plans[key] = make()
    return found


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
