"""TreePlan: how HCL with bce on a tree is launched, and the memory that it needs.

Forward: the wide stages of sums, one sweep up and down the inner classes, the class sums and the
selection. Backward: the wide stages again, a sweep up and down, and the gradient. Logits are read
four times and targets three times, everything else is of inner classes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hierlearn.kernels.hcl_arrays import FLOAT, INT, ceil_div, multiprocessors
from hierlearn.kernels.hcl_plan import LaunchPlan
from hierlearn.kernels.hcl_spec import interpreted
from hierlearn.kernels.tree_windows import WINDOW

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.kernels.launch import Launch
    from hierlearn.kernels.tree_layout import TreeLayout

PROGRAMS = 64  # per multiprocessor, of kernels whose programs take several rows
WINDOWS_AT_ONCE = 8  # that a sweep of one row processes at once
SWEEP_COLUMNS = 1024  # columns of a row that the sweeps down process at once
SWEEP_WARPS = {"num_warps": 4}


class TreeTile(NamedTuple):
    """The rows and columns that a program processes at once, its warps and most registers."""

    rows: int
    columns: int
    warps: int
    registers: int = 255


# Tuned on an H200. The columns of a window are settled already.
FOLD = TreeTile(2, 0, 1)
OWED = TreeTile(2, 0, 1)
SUMS = TreeTile(4, 512, 4)
GRADIENT = TreeTile(2, 512, 4)
PAIR = TreeTile(4, 512, 4)
GIVEN = TreeTile(1, 1024, 4)


def slot_arrays(layout: TreeLayout, rows: int, *, softmax: bool) -> dict[str, tuple[Any, int]]:
    """Return the arrays of all rows and slots."""
    slots = rows * layout.width
    arrays = {"peak": (FLOAT, slots), "owed": (FLOAT, slots)}
    for name in ("logp", "share", "even", "reference", "handed", "following"):
        arrays[name] = (INT if name == "following" else FLOAT, slots if softmax else 0)
    arrays["tops"] = (FLOAT, rows * len(layout.reductions.windows) if softmax else 0)
    arrays["row_sums"] = (FLOAT, rows * layout.reductions.windows_alone if softmax else 0)
    for name in ("beyond", "drops", "carried"):
        arrays[name] = (FLOAT, rows * layout.levels)
    arrays["norms"] = (FLOAT, 2 * rows)
    arrays["tails"] = (INT, rows)
    arrays["tail_slope"] = (FLOAT, rows)
    return arrays


def options_of(tile: TreeTile, device: torch.device) -> dict[str, int]:
    """Return how a kernel with these tiles is compiled."""
    options = {"num_warps": tile.warps}
    if tile.registers < 255 and is_fast(device):
        options["maxnreg"] = tile.registers
    return options


def row_shape() -> dict[str, int]:
    """Return the shape of the tiles of a sweep of one row."""
    return {"A": WINDOWS_AT_ONCE, "K": WINDOW}


def vector_of(classes: int, *arrays: Tensor) -> int:
    """Return how many neighboring columns a thread reads at once: 4 where all rows are aligned."""
    for array in arrays:
        if array.data_ptr() % (4 * array.element_size()) or array.stride(0) % 4:
            return 1
    return 1 if classes % 4 else 4


def is_fast(device: torch.device) -> bool:
    """Whether kernels may use single instructions of NVIDIA GPUs."""
    return device.type == "cuda" and torch.version.hip is None and not interpreted()


def divide(rows: int, programs: int, device: torch.device, step: int) -> tuple[int, int]:
    """Return how many rows a program takes, ``step`` at a time, and how many programs that makes."""
    most = ceil_div(PROGRAMS * multiprocessors(device), programs)
    height = step * ceil_div(ceil_div(rows, min(rows, most)), step)
    return height, ceil_div(rows, height)


def fold_launches(layout: TreeLayout, rows: int, x: Tensor, vector: int) -> list[Launch]:
    """Return the launches of the wide stages of sums, from the deepest level up."""
    from hierlearn.kernels.launch import Launch
    from hierlearn.kernels.tree_triton import fold_windows

    plan, found = layout.reductions, []
    size = (rows, layout.classes, layout.width, len(plan.windows), x.stride(0))
    for stage in plan.stages[: plan.alone]:
        names = f"x windows {'piece_group' if stage.pieces else 'group'} own slot window_of tops logp"
        height, parts = divide(rows, stage.number, x.device, FOLD.rows)
        constants: dict[str, Any] = {"PIECES": stage.pieces, "INNER": stage.inner}
        constants |= {"OWN": stage.own, "FAST": is_fast(x.device), "R": FOLD.rows, "K": WINDOW}
        constants["VEC"] = 1 if stage.pieces else vector
        numbers = (*size, stage.first, height)
        options = options_of(FOLD, x.device)
        grid = (stage.number, parts)
        found.append(Launch(fold_windows, grid, names, numbers, constants, options))
    return found


def sweep_launch(
    layout: TreeLayout, rows: int, strides: tuple[int, ...], kind: dict[str, bool]
) -> Launch:
    """Return the launch that goes up and down the inner classes in the forward pass."""
    from hierlearn.kernels.launch import Launch
    from hierlearn.kernels.tree_triton import descend

    plan = layout.reductions
    names = "x y m windows stages group piece_group children owner own slot parent window_of"
    names += " slot_bounds tops logp peak norms beyond drops tails"
    if not kind["BOUND"]:
        names = names.replace("x y m", "x x x")
    numbers = (layout.width, len(plan.windows), layout.levels, plan.alone, len(plan.stages))
    constants = {**kind, **row_shape(), "B": SWEEP_COLUMNS}
    return Launch(descend, (rows,), names, (*numbers, *strides), constants, SWEEP_WARPS)


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
        return self.layout.on(self.device)

    def launch(
        self, kernel: Any, grid: tuple[int, ...], names: str, numbers: Any, **constants: Any
    ) -> Launch:
        """Return a launch; the strides come last of its numbers."""
        from hierlearn.kernels.launch import Launch

        warps = constants.pop("WARPS", 4)
        options = {"num_warps": warps}
        return Launch(kernel, grid, names, (*numbers, *self.strides), constants, options)

    def plan_sweeps(self, x: Tensor, y: Tensor, known: Tensor) -> list[Launch]:
        """Plan the sums up the tree, the sweep down, and the class sums."""
        from hierlearn.kernels.tree_hcl_triton import sum_tree

        assert self.spec.tree is not None
        layout = self.layout = self.spec.tree
        self.is_few = False
        kind = {"SOFTMAX": self.spec.softmax, "BOUND": self.spec.bound}
        kind |= {"MASKED": self.flags["MASKED"], "FAST": self.flags["FAST"]}
        self.kind, self.vector = kind, vector_of(layout.classes, x, y, known)
        size = (self.rows, layout.classes, layout.width, layout.levels)
        launches = []
        if self.spec.softmax:
            launches = fold_launches(layout, self.rows, x, self.vector)
        launches.append(sweep_launch(layout, self.rows, self.strides, kind))
        height, self.parts, tiles = rows_and_columns(layout, self.rows, SUMS, self.device)
        self.programs = self.parts * tiles
        names = "x y m slot parent level logp peak norms beyond partials counts"
        grid = (tiles, self.parts)
        launches.append(self.tile_launch(sum_tree, grid, names, (*size, height), SUMS, kind))
        return launches

    def plan_gradient(self, x: Tensor, y: Tensor, known: Tensor) -> list[Launch]:
        """Plan the sweep up the groups, the sweep down, and the gradient."""
        del x, y, known
        if self.spec.softmax:
            return [*self.plan_owed(), *self.plan_softmax()]
        return [*self.plan_owed(), *self.plan_sigmoid()]

    def plan_owed(self) -> list[Launch]:
        """Plan the wide stages: what is owed to ancestors, and the sums of the softmax."""
        from hierlearn.kernels.tree_hcl_triton import sweep_windows

        layout, plan = self.layout, self.layout.reductions
        launches = []
        for stage in plan.stages[: plan.alone]:
            if stage.pieces and not (self.spec.bound or self.spec.softmax):
                continue
            names = f"x y m windows {'piece_group' if stage.pieces else 'group'} slot parent logp"
            names += " peak norms beyond weights stats upstream owed row_sums drops"
            height, parts = divide(self.rows, stage.number, self.device, OWED.rows)
            size = (self.rows, layout.classes, layout.width, layout.levels, plan.windows_alone)
            numbers = (*size, self.spec.base.scale, stage.first, stage.level, height)
            kind = {**self.kind, "PIECES": stage.pieces, "INNER": stage.inner}
            kind["FAST"] = kind.pop("FAST")  # in the order of the kernel
            tile = OWED._replace(columns=WINDOW)
            grid = (stage.number, parts)
            launches.append(self.tile_launch(sweep_windows, grid, names, numbers, tile, kind, "K"))
        return launches

    def tile_launch(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        names: str,
        numbers: tuple[float, ...],
        tile: TreeTile,
        kind: dict[str, bool],
        columns: str = "B",
    ) -> Launch:
        """Return the launch of a kernel that reads tiles; the strides come last of its numbers."""
        from hierlearn.kernels.launch import Launch

        constants = {**kind, "R": tile.rows, columns: tile.columns, "VEC": self.vector}
        numbers = (*numbers, *self.strides)
        return Launch(kernel, grid, names, numbers, constants, options_of(tile, self.device))

    def plan_softmax(self) -> list[Launch]:
        """Plan the gradient through the softmax."""
        kind = {"GIVEN": False, "HAS_P": True, "HAS_NOT_P": True, "BOUND": self.spec.bound}
        kind |= {"MASKED": self.flags["MASKED"], "FAST": self.flags["FAST"]}
        batch = (self.rows, self.strides, self.vector)
        return softmax_gradient(self.layout, batch, self.device, kind, self.spec.base.scale)

    def plan_sigmoid(self) -> list[Launch]:
        """Plan the gradient of scope "ancestors" with sigmoids."""
        from hierlearn.kernels.launch import Launch
        from hierlearn.kernels.tree_hcl_triton import sweep_rows, write_sigmoid

        layout, plan = self.layout, self.layout.reductions
        names = "x y m windows stages group piece_group slot parent peak weights stats upstream owed"
        numbers: tuple[float, ...] = (layout.width, layout.levels, self.spec.base.scale)
        numbers += (plan.alone, len(plan.stages), *self.strides)
        kind = {"MASKED": self.flags["MASKED"], "FAST": self.flags["FAST"]}
        constants = {**kind, **row_shape()}
        rows = Launch(sweep_rows, (self.rows,), names, numbers, constants, SWEEP_WARPS)
        height, parts, tiles = rows_and_columns(layout, self.rows, GRADIENT, self.device)
        numbers = (self.rows, layout.classes, layout.width, self.spec.base.scale, height)
        names = "x y m weights stats upstream slot parent peak owed out"
        grid = (tiles, parts)
        return [rows, self.tile_launch(write_sigmoid, grid, names, numbers, GRADIENT, kind)]


def rows_and_columns(
    layout: TreeLayout, rows: int, tile: TreeTile, device: torch.device
) -> tuple[int, int, int]:
    """Return the rows of a program, the parts that makes, and the tiles of columns."""
    tiles = ceil_div(layout.classes, tile.columns)
    return *divide(rows, tiles, device, tile.rows), tiles


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
    from hierlearn.kernels import tree_gradient_triton as kernels
    from hierlearn.kernels.launch import Launch

    rows, strides, vector = batch
    plan = layout.reductions
    first = "x y m weights stats upstream x x"
    if kind["GIVEN"]:
        first = "x x x x x x grad_p grad_not_p"
    sums = 1 if kind["GIVEN"] else plan.windows_alone
    names = f"{first} windows stages group piece_group owner slot parent slot_bounds logp peak norms"
    names += " beyond owed row_sums drops carried tails share even reference handed following"
    numbers = (layout.classes, layout.width, layout.levels, sums, scale)
    numbers += (plan.alone, len(plan.stages), *strides)
    constants = {**kind, **row_shape(), "B": SWEEP_COLUMNS}
    grid: tuple[int, ...] = (rows,)
    names += " tail_slope"
    launches = [Launch(kernels.slot_gradients, grid, names, numbers, constants, SWEEP_WARPS)]
    height, parts, columns = rows_and_columns(layout, rows, GRADIENT, device)
    names = f"{first} slot parent level terminal peak norms beyond reference handed tail_slope out"
    numbers = (rows, layout.classes, layout.width, layout.levels, scale, height, *strides)
    constants = {**kind, "R": GRADIENT.rows, "B": GRADIENT.columns, "VEC": vector}
    options = options_of(GRADIENT, device)
    grid = (columns, parts)
    launches.append(Launch(kernels.write_softmax, grid, names, numbers, constants, options))
    return launches
