"""What the Triton kernels of HCL compute (KernelSpec), and how they process batches of one shape.

Whatever depends on shapes, dtypes and alignment alone is computed once: tiles, grids, the offsets
of intermediate arrays. A call is then two allocations and a few launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hierlearn.kernels.choose import interpreted
from hierlearn.kernels.plan import (
    DOUBLE,
    FLOAT,
    INT,
    Launch,
    MemoryLayout,
    Plan,
    ceil_div,
    level_bounds,
    level_tiles,
    multiprocessors,
    next_power_of_2,
    scalar_one,
)

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.kernels.tree_layout import TreeLayout


@dataclass(frozen=True)
class SelectionOptions:
    """How the kernels select classes.

    Attributes:
        floor: the weight of unselected classes.
        by_rows: whether class losses and e_h are means over rows.
        fixed: whether a threshold is given instead of C + e_h.
    """

    floor: float
    by_rows: bool
    fixed: bool


@dataclass(frozen=True)
class KernelSpec:
    """What the kernels compute for every batch.

    Attributes:
        sizes: the number of classes of each level; one level where there is no constraint.
        scale: the factor on bce.
        mean: whether the loss is divided by the number of known entries.
        selection: how the kernels select, or None where the caller supplies weights.
        tree: the tree, for the softmax link and scope "ancestors".
        softmax: whether logits are read by a softmax over the terminal classes of the tree.
        bound: whether the classes of the tree are bound by their ancestors.
    """

    sizes: tuple[int, ...]
    scale: float
    mean: bool
    selection: SelectionOptions | None
    tree: TreeLayout | None = None
    softmax: bool = False
    bound: bool = False


SMALL_ENTRIES = 1 << 21  # up to this many entries the forward pass computes the gradient too
WHOLE_ROW_CLASSES = 1024  # up to this many classes a tile holds whole rows, if there are at most
WHOLE_ROW_ROWS = 8192
FEW_CLASSES = 1024  # up to this many classes one program adds the partial sums up and selects
SEARCH_CHUNKS = (32, 64)  # with more, chunks of classes among which the search is divided, and
TRIALS_PER_PROGRAM = 32  # trials of each program
MANY_CLASSES = 20000  # with more classes, the second number of chunks
SEARCH_ROUNDS, TRIALS, LAST_TRIALS = 5, 128, 16  # of the search; the last round needs fewer trials
SUM_PROGRAMS = 16  # programs per multiprocessor that compute class sums
STEP_PROGRAMS = 2  # programs per multiprocessor that select and write the gradient in one launch
MIN_ROWS = 4  # rows per program, at least, where classes are few
WARPS = {"num_warps": 4}


class Tiling(NamedTuple):
    """How a kernel divides a batch into tiles."""

    rows: int  # per tile
    columns: int  # per tile
    vector: int  # neighboring columns per thread
    warps: int
    stages: int = 1  # tiles in flight
    registers: int = 255  # per thread, at most


# By kernel and bytes per logit; tuned on an H200. Few and long rows want more threads per row.
TILINGS = {
    ("few", 4): Tiling(8, WHOLE_ROW_CLASSES, 4, 4),
    ("few", 2): Tiling(8, WHOLE_ROW_CLASSES, 4, 4),
    ("few gradient", 4): Tiling(2, WHOLE_ROW_CLASSES, 4, 4),
    ("few gradient", 2): Tiling(2, WHOLE_ROW_CLASSES, 4, 4),
    ("few step", 4): Tiling(4, WHOLE_ROW_CLASSES, 4, 8),
    ("peaks", 4): Tiling(4, 128, 4, 1),
    ("peaks", 2): Tiling(8, 128, 4, 1),
    ("wide peaks", 4): Tiling(4, 512, 4, 4),
    ("wide peaks", 2): Tiling(4, 512, 4, 4),
    ("sums", 4): Tiling(16, 512, 4, 4, 1, 128),
    ("sums", 2): Tiling(8, 512, 8, 2, 1, 128),
    ("gradient", 4): Tiling(4, 512, 4, 4, 3),
    ("gradient", 2): Tiling(4, 256, 4, 2, 4),
    ("wide gradient", 4): Tiling(2, 1024, 4, 8, 3),
    ("wide gradient", 2): Tiling(4, 256, 4, 2, 4),
}


class LaunchPlan(Plan):
    """The launches of one spec for batches of one shape.

    Args:
        spec: what is computed.
        x: (N, C) logits of the first such batch; the columns are contiguous.
        y: (N, C) targets, likewise.
        m: (N, C) mask, or None.
    """

    def __init__(self, spec: KernelSpec, x: Tensor, y: Tensor, m: Tensor | None) -> None:
        self.spec, self.device = spec, x.device
        self.rows, self.classes = x.shape
        known = y if m is None else m
        self.strides = (x.stride(0), y.stride(0), known.stride(0))
        fast = x.device.type == "cuda" and torch.version.hip is None and not interpreted()
        # The gradient is scaled by the upstream gradient later, for which float16 is too narrow.
        self.is_small = x.dtype == FLOAT and x.numel() <= SMALL_ENTRIES
        self.one = scalar_one(self.device)
        self.flags = {"MASKED": m is not None, "FAST": fast}
        self.bounds = level_bounds(spec.sizes, self.device)
        above = (len(spec.sizes) - 1) * self.rows
        self.sweeps = self.plan_sweeps(x, y, known)
        self.chunks = SEARCH_CHUNKS[self.classes > MANY_CLASSES]
        searched = 2 * self.chunks * TRIALS if self.classes > FEW_CLASSES else 0
        self.memory = MemoryLayout(
            sums=(FLOAT, self.classes),
            weights=(FLOAT, self.classes),
            stats=(FLOAT, 2),  # e_h, and 1 over the divisor of the reduction
            selected=(torch.bool, self.classes),
            partials=(FLOAT, self.parts * self.classes),
            counts=(INT, 2 * self.programs),
            peaks=(FLOAT, above),
            places=(INT, above),
            amounts=(DOUBLE, searched),
            numbers=(INT, searched),
            totals=(DOUBLE, self.chunks),
            bits=(INT, SEARCH_ROUNDS),
            **self.more_arrays(),
        )
        self.reduce = self.plan_reduction()
        self.selection = self.plan_selection() if spec.selection is not None else []
        self.gradient = self.plan_gradient(x, y, known)
        forward = [*self.sweeps, *self.selection]
        step = [*forward, *self.gradient]
        if self.is_small and self.is_few and self.selection:
            step = [*self.sweeps, self.plan_select_and_sweep_up(x, y, known)]
        self.launches = {
            "down": [*self.sweeps, self.reduce],
            "select": self.selection,
            "forward": forward,
            "step": step,
            "up": self.gradient,
        }
        self.finish(self.constant_arrays())

    def kept(self, block: Tensor) -> Tensor:
        """Return what a record keeps of a block, from its begin."""
        return block

    def more_arrays(self) -> dict[str, tuple[torch.dtype, int]]:
        """Return what other plans keep in the block besides."""
        return {}

    def constant_arrays(self) -> dict[str, Tensor]:
        """Return the arrays that depend on the hierarchy alone, by name."""
        return {"bounds": self.bounds, "tiles": self.tiles}

    # ------------------------------------------------------------------ tiles

    def tiling(self, kernel: str, x: Tensor, y: Tensor, known: Tensor) -> Tiling:
        """Choose the tiles of a kernel, smaller ones for a small batch."""
        rows, columns, vector, warps, *more = TILINGS[kernel, x.element_size()]
        # Where rows are not aligned, a thread reads one column at a time.
        for array in (x, y, known):
            while vector > 1 and (
                array.data_ptr() % (vector * array.element_size())
                or array.stride(0) % vector
                or self.classes % vector
            ):
                vector //= 2
        if "few" in kernel:  # a tile holds all classes, whatever their levels
            columns = max(16, next_power_of_2(self.classes))
        else:
            rows = max(1, rows // 2) if vector == 1 else rows
            # A tile that two levels share is read twice: small levels want small tiles.
            while columns > 128 and self.covered(columns) > 1.2 * self.classes:
                columns, warps = columns // 2, max(1, warps // 2)
            columns = max(16, min(columns, next_power_of_2(self.classes)))
        warps = min(warps, max(1, columns // (32 * vector)))
        if kernel == "sums":
            return Tiling(min(rows, next_power_of_2(self.rows)), columns, vector, warps, *more)
        # First enough programs to fill the device, then enough rows per program.
        least = MIN_ROWS if kernel == "few" else 1
        while rows > least and self.rows < 2 * multiprocessors(self.device) * rows:
            rows //= 2
        return Tiling(rows, columns, vector, warps, *more)

    def covered(self, columns: int) -> int:
        """Return the columns of all tiles of all levels."""
        begin = total = 0
        for size in self.spec.sizes:
            total += (begin + size - 1) // columns - begin // columns + 1
            begin += size
        return total * columns

    def tiled(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        names: str,
        numbers: Any,
        tiling: Tiling,
        **constants: Any,
    ) -> Launch:
        """Return the launch of a kernel that reads the batch in tiles."""
        # Only full tiles: loads need no bounds check.
        even = self.classes >= tiling.columns and self.rows % tiling.rows == 0
        constants = {
            **self.flags,
            "R": tiling.rows,
            "B": tiling.columns,
            "VEC": tiling.vector,
            "EVEN": even,
            "STAGES": tiling.stages,
            **constants,
        }
        numbers = (self.rows, self.classes, *numbers, *self.strides)
        options = {"num_warps": tiling.warps}
        if self.flags["FAST"] and tiling.registers < 255:
            options["maxnreg"] = tiling.registers
        names = f"x y m bounds {names}"
        return Launch(kernel, grid, names, numbers, constants, options)

    def plan_sweeps(self, x: Tensor, y: Tensor, known: Tensor) -> list[Launch]:
        """Plan the sweep down: how rows and classes are divided among programs."""
        from hierlearn.kernels import hcl_triton as kernels

        sizes, count = self.spec.sizes, multiprocessors(self.device)
        self.is_few = self.classes <= WHOLE_ROW_CLASSES and self.rows <= WHOLE_ROW_ROWS
        if self.is_few:
            tiling = self.tiling("few", x, y, known)
            height = tiling.rows * ceil_div(self.rows, tiling.rows * count)
            self.parts = self.programs = ceil_div(self.rows, height)
            self.tiles = self.bounds
            names = "peaks places partials counts"
            numbers = (height, len(sizes))
            return [self.tiled(kernels.sweep_few, (self.parts,), names, numbers, tiling)]
        tiling = self.tiling("sums", x, y, known)
        self.tiles = level_tiles(sizes, tiling.columns, self.device)
        # Enough programs for a few rounds over the device, each with enough rows to be worth it.
        parts = min(
            ceil_div(SUM_PROGRAMS * count, len(self.tiles)), ceil_div(self.rows, 2 * tiling.rows)
        )
        height = tiling.rows * ceil_div(self.rows, tiling.rows * parts)
        self.parts = ceil_div(self.rows, height)
        self.programs = self.parts * len(self.tiles)
        grid = (len(self.tiles), self.parts)
        names = "tiles peaks partials counts"
        launches = [self.tiled(kernels.sum_classes, grid, names, (height,), tiling)]
        if len(sizes) > 1:
            wide = "wide peaks" if max(sizes[:-1]) > 4096 else "peaks"
            tiling = self.tiling(wide, x, y, known)
            grid = (ceil_div(self.rows, tiling.rows), 1)
            names = "peaks places"
            launches.insert(0, self.tiled(kernels.find_peaks, grid, names, (len(sizes),), tiling))
        return launches

    def plan_gradient(self, x: Tensor, y: Tensor, known: Tensor) -> list[Launch]:
        """Plan the sweep up, which writes the gradient."""
        from hierlearn.kernels import hcl_triton as kernels

        kernel, name = kernels.sweep_up, "gradient"
        if self.classes <= WHOLE_ROW_CLASSES:
            kernel, name = kernels.sweep_up_few, "few gradient"
        elif self.rows < 48 * multiprocessors(self.device):
            name = "wide gradient"
        tiling = self.tiling(name, x, y, known)
        names = "peaks places weights stats upstream out"
        numbers = (len(self.spec.sizes), self.spec.scale)
        return [self.tiled(kernel, (ceil_div(self.rows, tiling.rows),), names, numbers, tiling)]

    def plan_select_and_sweep_up(self, x: Tensor, y: Tensor, known: Tensor) -> Launch:
        """Plan the selection and the sweep up as one launch, for few classes."""
        from hierlearn.kernels import hcl_triton as kernels

        selection = self.spec.selection
        assert selection is not None
        tiling = self.tiling("few step", x, y, known)
        programs = STEP_PROGRAMS * multiprocessors(self.device)
        height = tiling.rows * ceil_div(self.rows, tiling.rows * programs)
        names = "peaks places out partials counts threshold sums selected weights stats loss"
        entries = float(self.rows * self.classes)
        numbers: tuple[float, ...] = (len(self.spec.sizes), height, self.parts, float(self.rows))
        numbers += (self.spec.scale, selection.floor, entries)
        kind = {"BY_ROWS": selection.by_rows, "FIXED": selection.fixed}
        more = {"MEAN": self.spec.mean, **kind, "BG": min(32, next_power_of_2(self.parts))}
        grid = (ceil_div(self.rows, height),)
        return self.tiled(kernels.select_and_sweep_up_few, grid, names, numbers, tiling, **more)

    # ------------------------------------------------------------------ the selection

    def plan_reduction(self) -> Launch:
        """Plan how the partial sums are added up."""
        from hierlearn.kernels.hcl_triton import reduce_sums

        size = (self.parts, self.programs, self.classes)
        numbers = (*size, self.spec.scale, float(self.rows * self.classes))
        shape = {"BG": min(64, next_power_of_2(self.parts)), "BC": 64}
        constants = {"MASKED": self.flags["MASKED"], "MEAN": self.spec.mean, **shape}
        names = "partials counts sums stats"
        grid = (ceil_div(self.classes, 64),)
        return Launch(reduce_sums, grid, names, numbers, constants, WARPS)

    def plan_selection(self) -> list[Launch]:
        """Plan the selection: one launch for few classes, several for many."""
        from hierlearn.kernels import hcl_triton as kernels

        selection, rows = self.spec.selection, float(self.rows)
        assert selection is not None
        kind = {"BY_ROWS": selection.by_rows, "FIXED": selection.fixed}
        if self.classes <= FEW_CLASSES:
            columns = max(32, next_power_of_2(self.classes))
            size: tuple[float, ...] = (self.parts, self.programs, self.classes, rows)
            entries = float(self.rows * self.classes)
            numbers: tuple[float, ...]
            numbers = (*size, self.spec.scale, selection.floor, entries)
            flags = {"MASKED": self.flags["MASKED"], "MEAN": self.spec.mean}
            shape = {"BG": min(32, next_power_of_2(self.parts)), "BC": columns}
            constants = {**flags, **kind, **shape}
            names = "partials counts threshold sums selected weights stats loss"
            return [Launch(kernels.select_few, (1,), names, numbers, constants, WARPS)]
        search = "sums stats threshold amounts numbers bits totals"
        size = (self.classes, ceil_div(self.classes, self.chunks), rows)
        shape = {**kind, "CHUNKS": self.chunks, "BK": 256}
        group = {False: min(TRIALS_PER_PROGRAM, TRIALS), True: LAST_TRIALS}
        rounds = [
            Launch(
                kernels.search_round,
                (self.chunks, 1 if final else TRIALS // group[final]),
                search,
                (number, *size),
                {**shape, "GROUP": group[final], "FINAL": final},
                WARPS,
            )
            for number, final in enumerate([False] * (SEARCH_ROUNDS - 1) + [True])
        ]
        names, numbers = f"{search} selected weights loss", (*size, selection.floor)
        last = Launch(kernels.finish_search, (self.chunks,), names, numbers, shape, WARPS)
        return [self.reduce, *rounds, last]
