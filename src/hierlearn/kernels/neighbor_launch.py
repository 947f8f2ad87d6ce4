"""Launches of the kernels of the neighbor head: tilings, and replays by plain addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hierlearn.kernels.hcl_arrays import current_stream, next_power_of_2

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

MAX_REPLAYS = 1024


class Tiling(NamedTuple):
    """The entries that a program computes at once, and how Triton compiles it."""

    rows: int
    cols: int
    depth: int
    warps: int
    stages: int
    registers: int | None = None

    @property
    def constants(self) -> dict[str, int]:
        """What a kernel is compiled for."""
        return {"ROWS": self.rows, "COLS": self.cols, "DEPTH": self.depth}

    @property
    def options(self) -> dict[str, int]:
        """How it is compiled."""
        found = {"num_warps": self.warps, "num_stages": self.stages}
        return found if self.registers is None else {**found, "maxnreg": self.registers}


# The fastest of thirty on an H200.
FORWARD = Tiling(rows=128, cols=64, depth=32, warps=4, stages=3, registers=168)
BACKWARD = Tiling(rows=64, cols=128, depth=64, warps=4, stages=2)

REPLAYS: dict[Any, Callable[[int, tuple[int, ...]], None] | None] = {}


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    arrays: tuple[Tensor, ...],
    numbers: tuple[float, ...],
    constants: dict[str, Any],
    options: dict[str, int] | None = None,
) -> None:
    """Launch a kernel; from the second time on by plain addresses.

    Args:
        kernel: the Triton function; its arguments are arrays, then numbers, then constants.
        grid: the number of programs.
        arrays: tensors on the current device.
        numbers: plain numbers.
        constants: by name.
        options: how Triton compiles it.
    """
    options = options or {"num_warps": 4}
    addresses = tuple(one.data_ptr() for one in arrays)
    device = arrays[0].get_device()
    kinds = tuple((one.dtype, address % 16) for one, address in zip(arrays, addresses, strict=True))
    values = (*constants.values(), *options.values())
    key = (id(kernel), grid, numbers, values, device, kinds)
    replay = REPLAYS.get(key)
    if replay is not None:
        replay(current_stream(device), addresses)
        return
    from hierlearn.kernels.launch import Launch

    if len(REPLAYS) >= MAX_REPLAYS:  # the batch size changes all the time
        REPLAYS.clear()
    names = [f"array {number}" for number in range(len(arrays))]
    order = sorted(constants, key=kernel.arg_names.index)
    own = {name: constants[name] for name in order}
    first = Launch(kernel, grid, "", numbers, own, options)
    first.names = names
    REPLAYS[key] = first.compile_and_run(dict(zip(names, arrays, strict=True)))


def row_block(width: int) -> dict[str, int]:
    """Return how many rows and columns a program takes of a matrix of this width at once."""
    return {"R": 8, "B": min(256, next_power_of_2(width))}
