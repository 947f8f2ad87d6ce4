"""TreePlan: how HCL with bce on a tree is launched, and the memory that it needs.

Forward: the stages of sums up the tree, a sweep down the inner classes, the class sums and the
selection. Backward: the stages again, a sweep down, and the gradient. Logits are read four times
and targets three times, everything else is of inner classes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hierlearn.kernels.choose import interpreted
from hierlearn.kernels.hcl_plan import LaunchPlan
from hierlearn.kernels.plan import FLOAT, INT, Launch, ceil_div, multiprocessors
from hierlearn.kernels.tree_layout import WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.kernels.tree_layout import TreeLayout

PROGRAMS = 64  # per multiprocessor, of kernels whose programs take several rows
SWEEP_COLUMNS = 256  # columns of a row that the sweeps down process at once
SWEEP_WARPS = {"num_warps": 4}


class TreeTile(NamedTuple):
    """The columns that a program processes at once, its warps, most registers and stages."""

    columns: int
    warps: int
    registers: int = 255
    stages: int = 1  # rows or tiles in flight


# Tuned on an H200. The columns of a window are settled already.
FOLD = TreeTile(0, 1, 64)
OWED = TreeTile(0, 1, 64)
SUMS = TreeTile(512, 4)
SIGMOID_SUMS = TreeTile(512, 4)
GRADIENT = TreeTile(1024, 8)
SIGMOID_GRADIENT = TreeTile(1024, 8)
PAIR = TreeTile(512, 4)
GIVEN = TreeTile(1024, 4)
GIVEN_GRADIENT = TreeTile(1024, 8)


def slot_arrays(layout: TreeLayout, rows: int, *, softmax: bool) -> dict[str, tuple[Any, int]]:
    """Return the arrays of all rows and slots."""
    slots, windows = rows * layout.width, rows * len(layout.reductions.windows)
    arrays = {"peak": (FLOAT, slots), "owed": (FLOAT, slots)}
    for name in ("logp", "least", "share", "even", "reference", "handed", "following"):
        arrays[name] = (INT if name == "following" else FLOAT, slots if softmax else 0)
    for name in ("tops", "row_sums"):
        arrays[name] = (FLOAT, windows if softmax else 0)
    for name in ("beyond", "drops", "carried"):
        arrays[name] = (FLOAT, rows * layout.levels)
    for name in ("norms", "tails"):
        arrays[name] = (INT if name == "tails" else FLOAT, 2 * rows)
    for name in ("tail_keeps", "tail_slope"):
        arrays[name] = (FLOAT, rows)
    return arrays


def options_of(tile: TreeTile, device: torch.device) -> dict[str, int]:
    """Return how a kernel with these tiles is compiled."""
    options = {"num_warps": tile.warps}
    if tile.registers < 255 and is_fast(device):
        options["maxnreg"] = tile.registers
    return options


def vector_of(classes: int, *arrays: Tensor) -> int:
    """Return how many neighboring columns a thread reads at once: 4 where all rows are aligned."""
    for array in arrays:
        if array.data_ptr() % (4 * array.element_size()) or array.stride(0) % 4:
            return 1
    return 1 if classes % 4 else 4


def is_fast(device: torch.device) -> bool:
    """Whether kernels may use single instructions of NVIDIA GPUs."""
    return device.type == "cuda" and torch.version.hip is None and not interpreted()


def divide(rows: int, programs: int, device: torch.device) -> tuple[int, int]:
    """Return how many rows a program takes, and how many programs that makes."""
    most = ceil_div(PROGRAMS * multiprocessors(device), programs)
    height = ceil_div(rows, min(rows, most))
    return height, ceil_div(rows, height)


def fold_launches(layout: TreeLayout, rows: int, x: Tensor, vector: int) -> list[Launch]:
    """Return the launches of the stages of sums, from the deepest level up."""
    from hierlearn.kernels.tree_triton import fold_windows

    plan, found = layout.reductions, []
    size = (rows, layout.classes, layout.width, len(plan.windows), x.stride(0))
    for stage in plan.stages:
        group = "piece_group" if stage.pieces else "group"
        names = f"x windows {group} own slot window_of tops logp"
        height, parts = divide(rows, stage.number, x.device)
        constants: dict[str, Any] = {"PIECES": stage.pieces, "INNER": stage.inner}
        constants |= {"OWN": stage.own, "FAST": is_fast(x.device), "K": WINDOW}
        constants |= {"VEC": 1 if stage.pieces else vector, "STAGES": FOLD.stages}
        numbers = (*size, stage.first, height)
        options = options_of(FOLD, x.device)
        grid = (stage.number, parts)
        found.append(Launch(fold_windows, grid, names, numbers, constants, options))
    return found


def sweep_launch(
    layout: TreeLayout, rows: int, strides: tuple[int, ...], kind: dict[str, bool]
) -> Launch:
    """Return the launch that goes down the inner classes in the forward pass."""
    from hierlearn.kernels.tree_triton import descend

    names = "x y m" if kind["BOUND"] else "x x x"
    names += " children owner own slot parent window_of slot_bounds"
    names += " tops logp peak least norms beyond drops tails tail_keeps"
    numbers = (layout.width, len(layout.reductions.windows), layout.levels, *strides)
    constants = {**kind, "K": WINDOW, "B": SWEEP_COLUMNS}
    return Launch(descend, (rows,), names, numbers, constants, SWEEP_WARPS)


def tiled_launches(
    kernel: Any,
    layout: TreeLayout,
    tile: TreeTile,
    batch: tuple[int, torch.device],
    names: str,
    arguments: Callable[[int], tuple[float, ...]],
    constants: dict[str, Any],
) -> list[Launch]:
    """Return the launches of a kernel for the tiles of leaves alone, and for the others.

    Args:
        kernel: the kernel.
        layout: the tree.
        tile: what a program reads at once.
        batch: the number of rows, and the device.
        names: of the pointers; "tiles" stands for the numbers of the tiles.
        arguments: the numbers, given how many rows a program takes.
        constants: the compile-time constants, without INNER and the columns of a tile.
    """
    rows, device = batch
    height, parts, _ = rows_and_columns(layout, rows, tile, device)
    found = []
    for name, numbers in layout.tiles(tile.columns, device).items():
        if len(numbers):
            shape = {"INNER": name.startswith("inner"), "B": tile.columns}
            shape["STAGES"] = tile.stages
            chosen = " ".join(name if one == "tiles" else one for one in names.split())
            options = options_of(tile, device)
            grid, all_ = (len(numbers), parts), {**constants, **shape}
            found.append(Launch(kernel, grid, chosen, arguments(height), all_, options))
    return found


class TreePlan(LaunchPlan):
    """The launches of HCL with bce on a tree, for batches of one shape."""

    layout: TreeLayout

    def kept(self, block: Tensor) -> Tensor:
        """Return the sums and weights alone: the arrays of inner classes are as large as logits."""
        return block[: self.memory.entries["partials"][0]].clone()

    def more_arrays(self) -> dict[str, tuple[torch.dtype, int]]:
        """Return the arrays of inner classes."""
        return slot_arrays(self.layout, self.rows, softmax=self.spec.softmax)

    def constant_arrays(self) -> dict[str, Tensor]:
        """Return the index arrays of the tree."""
        return dict(self.layout.on(self.device))

    def plan_sweeps(self, x: Tensor, y: Tensor, known: Tensor) -> list[Launch]:
        """Plan the sums up the tree, the sweep down, and the class sums."""
        assert self.spec.tree is not None
        layout = self.layout = self.spec.tree
        self.is_few = False
        self.kind = {"SOFTMAX": self.spec.softmax, "BOUND": self.spec.bound}
        self.kind |= {"MASKED": self.flags["MASKED"], "FAST": self.flags["FAST"]}
        self.vector = vector_of(layout.classes, x, y, known)
        launches = []
        if self.spec.softmax:
            launches = fold_launches(layout, self.rows, x, self.vector)
        launches.append(sweep_launch(layout, self.rows, self.strides, self.kind))
        tile = SUMS if self.spec.softmax else SIGMOID_SUMS
        _, self.parts, tiles = rows_and_columns(layout, self.rows, tile, self.device)
        self.programs = self.parts * tiles
        return [*launches, *(self.plan_sums(tiles) if self.spec.softmax else [self.sigmoid_sums()])]

    def plan_sums(self, tiles: int) -> list[Launch]:
        """Plan the class sums of the softmax."""
        from hierlearn.kernels.tree_hcl_triton import sum_softmax

        layout = self.layout
        names = "x y m tiles slot parent level logp peak norms beyond partials counts"
        constants = {**self.kind, "VEC": self.vector}
        del constants["SOFTMAX"]
        size = (self.rows, layout.classes, layout.width, layout.levels, tiles)
        return tiled_launches(
            sum_softmax,
            layout,
            SUMS,
            (self.rows, self.device),
            names,
            lambda height: (*size, height, *self.strides),
            constants,
        )

    def sigmoid_sums(self) -> Launch:
        """Plan the class sums of sigmoids."""
        from hierlearn.kernels.tree_hcl_triton import sum_sigmoid

        layout, tile = self.layout, SIGMOID_SUMS
        height, parts, tiles = rows_and_columns(layout, self.rows, tile, self.device)
        numbers = (self.rows, layout.classes, layout.width, height, *self.strides)
        shape = {"B": tile.columns, "VEC": self.vector, "STAGES": tile.stages}
        constants = {"MASKED": self.flags["MASKED"], "FAST": self.flags["FAST"], **shape}
        names, options = "x y m parent peak partials counts", options_of(tile, self.device)
        return Launch(sum_sigmoid, (tiles, parts), names, numbers, constants, options)

    def plan_gradient(self, x: Tensor, y: Tensor, known: Tensor) -> list[Launch]:
        """Plan the sums up the groups, the sweep down, and the gradient."""
        del x, y, known
        if self.spec.softmax:
            return [*self.plan_owed(), *self.plan_softmax()]
        return [*self.plan_owed(), *self.plan_sigmoid()]

    def plan_owed(self) -> list[Launch]:
        """Plan the stages: what is owed to ancestors, and the sums of the softmax."""
        from hierlearn.kernels.tree_hcl_triton import sweep_windows

        layout, plan = self.layout, self.layout.reductions
        launches, tile = [], OWED
        for stage in plan.stages:
            group = "piece_group" if stage.pieces else "group"
            names = f"x y m windows {group} slot parent logp peak least norms beyond tail_keeps"
            names += " weights stats upstream owed row_sums drops"
            height, parts = divide(self.rows, stage.number, self.device)
            size = (self.rows, layout.classes, layout.width, layout.levels, len(plan.windows))
            numbers = (*size, self.spec.scale, stage.first, stage.level, height, *self.strides)
            constants: dict[str, Any] = {**self.kind, "PIECES": stage.pieces, "INNER": stage.inner}
            constants |= {"K": WINDOW, "VEC": 1 if stage.pieces else self.vector}
            constants["STAGES"] = tile.stages
            grid, options = (stage.number, parts), options_of(tile, self.device)
            launches.append(Launch(sweep_windows, grid, names, numbers, constants, options))
        return launches

    def plan_softmax(self) -> list[Launch]:
        """Plan the gradient through the softmax."""
        kind = {"GIVEN": False, "HAS_P": True, "HAS_NOT_P": True, "BOUND": self.spec.bound}
        kind |= {"MASKED": self.flags["MASKED"], "FAST": self.flags["FAST"]}
        batch = (self.rows, self.strides, self.vector)
        return softmax_gradient(self.layout, batch, self.device, kind, self.spec.scale)

    def plan_sigmoid(self) -> list[Launch]:
        """Plan the gradient of scope "ancestors" with sigmoids."""
        from hierlearn.kernels.tree_hcl_triton import write_sigmoid

        layout, tile = self.layout, SIGMOID_GRADIENT
        names = "x y m weights stats upstream slot parent peak owed out"
        numbers = (layout.classes, layout.width, self.spec.scale, *self.strides)
        constants: dict[str, Any] = {"MASKED": self.flags["MASKED"], "FAST": self.flags["FAST"]}
        constants |= {"B": tile.columns, "VEC": self.vector, "STAGES": tile.stages}
        options = options_of(tile, self.device)
        return [Launch(write_sigmoid, (self.rows,), names, numbers, constants, options)]


def rows_and_columns(
    layout: TreeLayout, rows: int, tile: TreeTile, device: torch.device
) -> tuple[int, int, int]:
    """Return the rows of a program, the parts that makes, and the tiles of columns."""
    tiles = ceil_div(layout.classes, tile.columns)
    return *divide(rows, tiles, device), tiles


def softmax_gradient(
    layout: TreeLayout,
    batch: tuple[int, tuple[int, ...], int],
    device: torch.device,
    kind: dict[str, bool],
    scale: float,
) -> list[Launch]:
    """Return the sweep down and the gradient, of HCL or of given gradients of the pair.

    Args:
        layout: the tree.
        batch: the number of rows, the strides of logits, targets and mask, and how many columns a
            thread reads at once.
        device: where the launches run.
        kind: the constants of both kernels.
        scale: the factor on bce.
    """
    from hierlearn.kernels import tree_hcl_triton as kernels

    rows, strides, vector = batch
    pointers = "weights stats upstream x x"
    sums, data = len(layout.reductions.windows), "x y m"
    if kind["GIVEN"]:
        sums, data, pointers = 1, "x x x", "x x x grad_p grad_not_p"
    names = f"{data[2:]} {pointers} owner parent level slot_bounds logp peak beyond owed row_sums"
    names += " drops carried tails tail_keeps share even reference handed following tail_slope"
    numbers = (layout.classes, layout.width, layout.levels, sums, scale, *strides[1:])
    constants = {**kind, "B": SWEEP_COLUMNS}
    sweep = Launch(kernels.slot_gradients, (rows,), names, numbers, constants, SWEEP_WARPS)
    tile = GIVEN_GRADIENT if kind["GIVEN"] else GRADIENT
    tiles = layout.tiles(tile.columns, device)
    names = f"{data} {' '.join(tiles)} {pointers} slot parent terminal least norms tail_keeps"
    names += " reference handed tail_slope out"
    counts = [len(numbers) for numbers in tiles.values()]
    numbers = (layout.classes, layout.width, *counts, scale, *strides)
    constants = {**kind, "B": tile.columns, "VEC": vector, "STAGES": tile.stages}
    options = options_of(tile, device)
    return [sweep, Launch(kernels.write_softmax, (rows,), names, numbers, constants, options)]
