"""TreePlan: how HCL with bce on a tree is launched, and the memory that it needs.

Forward: the groups of each level from the deepest, one sweep down the inner classes, the class sums
and the selection. Backward: the groups again, a sweep down, and the gradient. Logits are read four
times and targets three times, everything else is of inner classes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hierlearn.kernels.hcl_arrays import FLOAT, INT, ceil_div, multiprocessors
from hierlearn.kernels.hcl_plan import LaunchPlan
from hierlearn.kernels.hcl_spec import interpreted

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.kernels.launch import Launch
    from hierlearn.kernels.tree_layout import Groups, TreeLayout

PROGRAMS = 64  # per multiprocessor, of kernels whose programs take several rows
SWEEP = {"B": 1024}  # columns of a row that the sweeps down process at once
SWEEP_WARPS = {"num_warps": 4}


class TreeTile(NamedTuple):
    """The columns of a row that a program processes at once, and its warps."""

    columns: int
    warps: int
    stages: int = 1  # rows in flight


SUMS = TreeTile(512, 4, 1)
GRADIENT = TreeTile(512, 8, 1)
PAIR = TreeTile(512, 8, 1)


def slot_arrays(layout: TreeLayout, rows: int, *, softmax: bool) -> dict[str, tuple[Any, int]]:
    """Return the arrays of all rows and slots; a name may serve two kernels in turn."""
    slots = rows * layout.slots
    arrays = {"peak": (FLOAT, slots), "owed": (FLOAT, slots)}
    for name in ("logp", "top", "grown", "rest", "best", "following"):
        kind = INT if name in ("best", "following") else FLOAT
        arrays[name] = (kind, slots if softmax else 0)
    arrays["shift"] = (FLOAT, slots if softmax else 0)
    arrays["norms"] = (FLOAT, 2 * rows)
    arrays["beyond"] = (FLOAT, rows * layout.levels)
    arrays["drops"] = (FLOAT, rows * layout.levels)
    arrays["row_sums"] = (FLOAT, 2 * rows * layout.tiles if softmax else 0)
    return arrays


def warps_of(group: Groups) -> dict[str, int]:
    """Return the warps of a tile of groups."""
    if group.small:
        return {"num_warps": max(1, group.slots // 32)}
    return {"num_warps": 8 if group.slots * group.columns > 2048 else 4}


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


def fold_launches(layout: TreeLayout, rows: int, x_row: int, device: torch.device) -> list[Launch]:
    """Return the launches that sum all groups, from the deepest level up."""
    from hierlearn.kernels.launch import Launch
    from hierlearn.kernels.tree_triton import fold_groups

    names = "x terminal first owner slot top grown rest best"
    found = []
    for group in reversed(layout.groups):
        height, parts = divide(rows, group.tiles, device)
        numbers = (rows, layout.classes, layout.slots, x_row, group.first, group.number, height)
        constants: dict[str, Any] = {"LEAVES": group.leaves, "OWN": group.own}
        constants["WHOLE"] = group.whole
        constants |= {"A": 0 if group.small else 1, "P": group.slots, "K": group.columns}
        options = warps_of(group)
        found.append(Launch(fold_groups, (group.tiles, parts), names, numbers, constants, options))
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
        from hierlearn.kernels import tree_hcl_triton, tree_triton

        assert self.spec.tree is not None
        layout = self.layout = self.spec.tree
        self.is_few = False
        kind = {"SOFTMAX": self.spec.softmax, "BOUND": self.spec.bound}
        kind |= {"MASKED": self.flags["MASKED"], "FAST": self.flags["FAST"]}
        self.vector = vector_of(layout.classes, x, y, known)
        size = (self.rows, layout.classes, layout.slots, layout.levels)
        launches = []
        if self.spec.softmax:
            launches = fold_launches(layout, self.rows, self.strides[0], x.device)
        names = "x y m owner slot parent slot_bounds top grown rest best logp peak norms beyond"
        columns = {**SWEEP, "WARPS": SWEEP_WARPS["num_warps"]}
        launches.append(
            self.launch(tree_triton.descend, (self.rows,), names, size, **kind, **columns)
        )
        height, self.parts, tiles = rows_and_columns(layout, self.rows, SUMS, self.device)
        self.programs = self.parts * tiles
        names = "x y m slot parent level logp peak norms beyond partials counts"
        shape = {"B": SUMS.columns, "VEC": self.vector, "STAGES": SUMS.stages}
        shape["WARPS"] = SUMS.warps
        grid = (tiles, self.parts)
        kernel = tree_hcl_triton.sum_tree
        launches.append(self.launch(kernel, grid, names, (*size, height), **kind, **shape))
        return launches

    def plan_gradient(self, x: Tensor, y: Tensor, known: Tensor) -> list[Launch]:
        """Plan the sweep up the groups, the sweep down, and the gradient."""
        del y, known
        launches = []
        if self.spec.softmax or self.spec.bound:
            launches = self.plan_groups(x)
        return [*launches, *(self.plan_softmax() if self.spec.softmax else self.plan_sigmoid())]

    def plan_groups(self, x: Tensor) -> list[Launch]:
        """Plan the sweep up: what is owed to ancestors, and the sums of the softmax."""
        from hierlearn.kernels.tree_hcl_triton import sweep_groups

        layout, scale = self.layout, self.spec.base.scale
        names = "x y m first slot logp peak norms beyond weights stats upstream"
        names += " owed row_sums drops"
        launches, tile = [], layout.tiles
        for level in reversed(range(layout.levels)):
            group = layout.groups[level]
            tile -= group.tiles
            height, parts = divide(self.rows, group.tiles, x.device)
            size = (self.rows, layout.slots, layout.levels, layout.tiles, scale, *self.strides)
            numbers = (*size, group.first, group.number, level, tile, height)
            constants: dict[str, Any] = {"SOFTMAX": self.spec.softmax, "BOUND": self.spec.bound}
            constants |= {"MASKED": self.flags["MASKED"], "LEAVES": group.leaves}
            constants |= {"FAST": self.flags["FAST"], "A": 0 if group.small else 1}
            constants |= {"P": group.slots, "K": group.columns}
            launches.append(
                self.plain_launch(
                    sweep_groups,
                    (group.tiles, parts),
                    names,
                    numbers,
                    constants,
                    warps_of(group),
                )
            )
        return launches

    @staticmethod
    def plain_launch(*arguments: Any) -> Launch:
        """Return a launch with all its arguments."""
        from hierlearn.kernels.launch import Launch

        return Launch(*arguments)

    def plan_softmax(self) -> list[Launch]:
        """Plan the gradient through the softmax."""
        kind = {"GIVEN": False, "HAS_P": True, "HAS_NOT_P": True, "BOUND": self.spec.bound}
        kind |= {"MASKED": self.flags["MASKED"], "FAST": self.flags["FAST"]}
        batch = (self.rows, self.strides, self.vector)
        return softmax_gradient(self.layout, batch, self.device, kind, self.spec.base.scale)

    def plan_sigmoid(self) -> list[Launch]:
        """Plan the gradient of scope "ancestors" with sigmoids."""
        from hierlearn.kernels.tree_hcl_triton import write_sigmoid

        layout = self.layout
        height, parts, tiles = rows_and_columns(layout, self.rows, GRADIENT, self.device)
        numbers = (self.rows, layout.classes, layout.slots, self.spec.base.scale, height)
        names = "x y m weights stats upstream slot parent peak owed out"
        kind = {"MASKED": self.flags["MASKED"], "FAST": self.flags["FAST"]}
        shape = {"B": GRADIENT.columns, "VEC": self.vector, "STAGES": GRADIENT.stages}
        shape["WARPS"] = GRADIENT.warps
        return [self.launch(write_sigmoid, (tiles, parts), names, numbers, **kind, **shape)]


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
    from hierlearn.kernels import tree_gradient_triton as kernels
    from hierlearn.kernels.launch import Launch

    rows, strides, vector = batch
    first = "y m weights stats upstream x x"
    if kind["GIVEN"]:
        first = "x x x x x grad_p grad_not_p"
    tiles = 1 if kind["GIVEN"] else layout.tiles
    # What the slots hand down replaces what summing up the tree has left there.
    handed = "top grown rest shift"
    names = f"{first} owner parent slot_bounds logp peak beyond owed row_sums drops"
    size = (rows, layout.classes, layout.slots, layout.levels)
    launches = [
        Launch(
            kernels.slot_gradients,
            (rows,),
            f"{names} {handed} following",
            (*size[1:], tiles, scale, *strides[1:]),
            {**kind, **SWEEP},
            SWEEP_WARPS,
        )
    ]
    height, parts, columns = rows_and_columns(layout, rows, GRADIENT, device)
    names = f"x {first} slot parent level terminal logp peak norms beyond {handed} out"
    launches.append(
        Launch(
            kernels.write_softmax,
            (columns, parts),
            names,
            (*size, scale, height, *strides),
            {**kind, "B": GRADIENT.columns, "VEC": vector, "STAGES": GRADIENT.stages},
            {"num_warps": GRADIENT.warps},
        )
    )
    return launches
