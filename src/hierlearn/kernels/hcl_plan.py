"""Plan: how the kernels of HCL take batches of one shape, and the memory they need for it.

Everything that depends on shapes, types and alignment alone is settled once: tiles, grids, the
places of what is kept in between. A call is then two allocations and a few launches.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from hierlearn.kernels.hcl_arrays import (
    BYTE,
    DOUBLE,
    FLOAT,
    INT,
    Memory,
    bounds_on,
    current_device,
    current_stream,
    on,
    one_on,
    parts_of,
    processors,
    tiles_on,
    up_to_power,
)
from hierlearn.kernels.hcl_task import Task, interpreted

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.kernels.launch import Launch

SMALL = 1 << 21  # entries up to which the gradient is made on the way forward
ROW = 1024  # classes up to which a tile holds whole rows, for batches up to
ROWS = 8192
FEW = 1024  # classes up to which one program adds the partial sums up and selects
CHUNKS, GROUP = (32, 64), 32  # how programs share the selection beyond: classes, and trials
CROWD = 20000  # classes from which the second number of chunks holds
ROUNDS = 16  # programs of the class sums, for every multiprocessor
TURNS, TRIALS, LEFT = 5, 128, 16  # of their search; the last turn needs fewer trials
PAIRS = 2  # programs a multiprocessor, of those that select and write the gradient in one
LOOSE = 4  # rows that a program takes at least where classes are few
WARPS = {"num_warps": 4}


class Cut(NamedTuple):
    """How a kernel takes a batch: rows and columns of a tile, columns a thread, warps, stages."""

    rows: int
    columns: int
    together: int
    warps: int
    stages: int = 1  # tiles in flight
    registers: int = 255  # a thread, at most


# By kernel and bytes of a logit; found by trial on an H200. Long rows and few of them want more
# threads a row.
CUTS = {
    ("few", 4): Cut(8, ROW, 4, 4),
    ("few", 2): Cut(8, ROW, 4, 4),
    ("few gradient", 4): Cut(2, ROW, 4, 4),
    ("few gradient", 2): Cut(2, ROW, 4, 4),
    ("few step", 4): Cut(4, ROW, 4, 8),
    ("peaks", 4): Cut(4, 128, 4, 1),
    ("peaks", 2): Cut(8, 128, 4, 1),
    ("wide peaks", 4): Cut(4, 512, 4, 4),
    ("wide peaks", 2): Cut(4, 512, 4, 4),
    ("sums", 4): Cut(16, 512, 4, 4, 1, 128),
    ("sums", 2): Cut(8, 512, 8, 2, 1, 128),
    ("gradient", 4): Cut(4, 512, 4, 4, 3),
    ("gradient", 2): Cut(4, 256, 4, 2, 4),
    ("wide gradient", 4): Cut(2, 1024, 4, 8, 3),
    ("wide gradient", 2): Cut(4, 256, 4, 2, 4),
}


class Plan:
    """The launches of one task for batches of one shape.

    Args:
        task: what is computed.
        x: (N, C) logits of the first such batch, neighboring columns side by side.
        y: (N, C) targets, likewise.
        m: (N, C) what is known, or None.
    """

    def __init__(self, task: Task, x: Tensor, y: Tensor, m: Tensor | None) -> None:
        self.task, self.device = task, x.device
        self.rows, self.classes = x.shape
        known = y if m is None else m
        self.strides = (x.stride(0), y.stride(0), known.stride(0))
        fast = x.device.type == "cuda" and torch.version.hip is None and not interpreted()
        # What is left of such a gradient is a product, for which float16 has too narrow a range.
        self.is_small = x.dtype == FLOAT and x.numel() <= SMALL
        self.one = one_on(self.device)
        self.flags = {"MASKED": m is not None, "FOCAL": task.base.focal, "FAST": fast}
        self.bounds = bounds_on(task.sizes, self.device)
        above = (len(task.sizes) - 1) * self.rows
        self.sweeps = self.plan_sweeps(x, y, known)
        self.chunks = CHUNKS[self.classes > CROWD]
        searched = 2 * self.chunks * TRIALS if self.classes > FEW else 0
        self.memory = Memory(
            sums=(FLOAT, self.classes),
            weights=(FLOAT, self.classes),
            stats=(FLOAT, 2),  # e_h, and 1 over what the reduction divides by
            selected=(torch.bool, self.classes),
            partials=(FLOAT, self.parts * self.classes),
            counts=(INT, 2 * self.programs),
            peaks=(FLOAT, above),
            places=(INT, above),
            worst=(FLOAT, above if task.base.focal else 0),
            amounts=(DOUBLE, searched),
            numbers=(INT, searched),
            totals=(DOUBLE, self.chunks),
            bits=(INT, TURNS),
        )
        self.reduce = self.plan_reduction()
        self.selection = self.plan_selection() if task.selection is not None else []
        self.gradient = self.plan_gradient(x, y, known)
        forward = [*self.sweeps, *self.selection]
        step = [*forward, self.gradient]
        if self.is_small and self.is_few and self.selection:
            step = [*self.sweeps, self.plan_rest(x, y, known)]
        self.parts_of_it = {
            "down": [*self.sweeps, self.reduce],
            "select": self.selection,
            "forward": forward,
            "step": step,
            "up": [self.gradient],
        }
        with torch.inference_mode(False):
            # Cheaper to make another one like it than to say what it is like; holds one byte.
            self.blank = torch.empty(1, dtype=BYTE, device=self.device).expand(self.memory.size)
        self.addresses = [self.bounds.data_ptr(), self.tiles.data_ptr()]
        # By names of part and tensors: the places of arrays in the block, and for each launch which
        # of tensors, places and addresses are its pointers.
        self.recipes: dict[tuple[str, ...], tuple[list[int], list[tuple[Any, Any]]]] = {}

    # ------------------------------------------------------------------ a call

    def new_block(self) -> Tensor:
        """Return memory for the arrays of one call."""
        return torch.empty_like(self.blank)

    def run(self, names: tuple[str, ...], block: Tensor, tensors: tuple[Tensor, ...]) -> None:
        """Launch a part of the plan.

        Args:
            names: of the part ("down", "select", "forward", "step", "up"), then of the tensors.
            block: where all arrays lie that are not among the tensors.
            tensors: in the order of their names, at addresses that are multiples of 16 but for
                logits, targets and mask, and out where that is the memory of the logits.
        """
        recipe = self.recipes.get(names)
        if recipe is None:
            with on(self.device):
                self.run_first(names, block, tensors)
            return
        begin, (places, launches) = block.data_ptr(), recipe
        values = [tensor.data_ptr() for tensor in tensors]
        values += [begin + place for place in places]
        values += self.addresses
        index = self.device.index
        stream = current_stream(index)
        if index == current_device():
            for fire, pick in launches:
                fire(stream, pick(values))
        else:
            with torch.cuda.device(index):
                for fire, pick in launches:
                    fire(stream, pick(values))

    def run_first(self, names: tuple[str, ...], block: Tensor, tensors: tuple[Tensor, ...]) -> None:
        """Do the work of ``run`` with tensors, and write down how addresses replace them."""
        launches = self.parts_of_it[names[0]]
        at = {**self.memory.arrays(block), "bounds": self.bounds, "tiles": self.tiles}
        for name, tensor in zip(names[1:], tensors, strict=True):
            at[name] = tensor.view(BYTE) if tensor.dtype == torch.bool else tensor
        compiled = [launch.first(at) for launch in launches]
        if None in compiled:
            return
        used = {name for launch in launches for name in launch.names} - {*names[1:]}
        own = {name: place[0] for name, place in self.memory.places.items() if name in used}
        order = [*names[1:], *own, "bounds", "tiles"]
        picks = [itemgetter(*map(order.index, launch.names)) for launch in launches]
        self.recipes[names] = (list(own.values()), list(zip(compiled, picks, strict=True)))

    # ------------------------------------------------------------------ tiles

    def cut(self, kernel: str, x: Tensor, y: Tensor, known: Tensor) -> Cut:
        """Choose the tiles of a kernel, smaller ones for a small batch."""
        rows, columns, together, warps, *more = CUTS[kernel, x.element_size()]
        # Where rows may begin anywhere, a thread reads one column at a time.
        for array in (x, y, known):
            while together > 1 and (
                array.data_ptr() % (together * array.element_size())
                or array.stride(0) % together
                or self.classes % together
            ):
                together //= 2
        if "few" in kernel:  # a tile holds all classes, whatever their levels
            columns = max(16, up_to_power(self.classes))
        else:
            rows = max(1, rows // 2) if together == 1 else rows
            # A tile that two levels share is read twice: levels that are small want small tiles.
            while columns > 128 and self.covered(columns) > 1.2 * self.classes:
                columns, warps = columns // 2, max(1, warps // 2)
            columns = max(16, min(columns, up_to_power(self.classes)))
        warps = min(warps, max(1, columns // (32 * together)))
        if kernel == "sums":
            return Cut(min(rows, up_to_power(self.rows)), columns, together, warps, *more)
        # Programs enough to fill the device come first, rows enough a program second.
        least = LOOSE if kernel == "few" else 1
        while rows > least and self.rows < 2 * processors(self.device) * rows:
            rows //= 2
        return Cut(rows, columns, together, warps, *more)

    def covered(self, columns: int) -> int:
        """Return the columns of all tiles of all levels."""
        begin = total = 0
        for size in self.task.sizes:
            total += (begin + size - 1) // columns - begin // columns + 1
            begin += size
        return total * columns

    def tiled(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        names: str,
        numbers: Any,
        cut: Cut,
        **constants: Any,
    ) -> Launch:
        """Return the launch of a kernel that reads the batch in tiles."""
        from hierlearn.kernels.launch import Launch

        base = self.task.base
        # Only full tiles: nobody has to ask whether an entry is there.
        even = self.classes >= cut.columns and self.rows % cut.rows == 0 and not base.focal
        constants = {
            **self.flags,
            "R": cut.rows,
            "B": cut.columns,
            "VEC": cut.together,
            "EVEN": even,
            "STAGES": cut.stages,
            **constants,
        }
        numbers = (self.rows, self.classes, *numbers, *self.strides)
        numbers += (base.positive, base.negative, base.gamma)
        options = {"num_warps": cut.warps}
        if self.flags["FAST"] and cut.registers < 255:
            options["maxnreg"] = cut.registers
        names = f"x y m bounds {names}"
        return Launch(kernel, grid, names, numbers, constants, options)

    def plan_sweeps(self, x: Tensor, y: Tensor, known: Tensor) -> list[Launch]:
        """Plan the way down: how rows and classes are divided among programs."""
        from hierlearn.kernels import hcl_triton as kernels

        sizes, count = self.task.sizes, processors(self.device)
        self.is_few = self.classes <= ROW and self.rows <= ROWS
        if self.is_few:
            cut = self.cut("few", x, y, known)
            height = cut.rows * parts_of(self.rows, cut.rows * count)
            self.parts = self.programs = parts_of(self.rows, height)
            self.tiles = self.bounds
            names = "peaks places partials counts"
            numbers = (height, len(sizes))
            return [self.tiled(kernels.sweep_few, (self.parts,), names, numbers, cut)]
        cut = self.cut("sums", x, y, known)
        self.tiles = tiles_on(sizes, cut.columns, self.device)
        # Programs enough for a few rounds over the device, each with rows enough to be worth it.
        parts = min(parts_of(ROUNDS * count, len(self.tiles)), parts_of(self.rows, 2 * cut.rows))
        height = cut.rows * parts_of(self.rows, cut.rows * parts)
        self.parts = parts_of(self.rows, height)
        self.programs = self.parts * len(self.tiles)
        grid = (len(self.tiles), self.parts)
        names = "tiles peaks worst partials counts"
        launches = [self.tiled(kernels.sum_classes, grid, names, (height,), cut)]
        if len(sizes) > 1:
            wide = "wide peaks" if max(sizes[:-1]) > 4096 else "peaks"
            cut = self.cut(wide, x, y, known)
            grid = (parts_of(self.rows, cut.rows), 1)
            names = "peaks places worst"
            launches.insert(0, self.tiled(kernels.find_peaks, grid, names, (len(sizes),), cut))
        return launches

    def plan_gradient(self, x: Tensor, y: Tensor, known: Tensor) -> Launch:
        """Plan the way up."""
        from hierlearn.kernels import hcl_triton as kernels

        kernel, name = kernels.sweep_up, "gradient"
        if self.classes <= ROW:
            kernel, name = kernels.sweep_up_few, "few gradient"
        elif self.rows < 48 * processors(self.device):
            name = "wide gradient"
        cut = self.cut(name, x, y, known)
        names = "peaks places weights stats upstream out"
        numbers = (len(self.task.sizes), self.task.base.scale)
        return self.tiled(kernel, (parts_of(self.rows, cut.rows),), names, numbers, cut)

    def plan_rest(self, x: Tensor, y: Tensor, known: Tensor) -> Launch:
        """Plan the selection and the way up in one, for few classes."""
        from hierlearn.kernels import hcl_triton as kernels

        selection, base = self.task.selection, self.task.base
        assert selection is not None
        cut = self.cut("few step", x, y, known)
        height = cut.rows * parts_of(self.rows, cut.rows * PAIRS * processors(self.device))
        names = "peaks places out partials counts threshold sums selected weights stats loss"
        entries = float(self.rows * self.classes)
        numbers: tuple[float, ...] = (len(self.task.sizes), height, self.parts, float(self.rows))
        numbers += (base.scale, selection.floor, entries)
        kind = {"BY_ROWS": selection.by_rows, "FIXED": selection.fixed}
        more = {"MEAN": self.task.mean, **kind, "BG": min(32, up_to_power(self.parts))}
        grid = (parts_of(self.rows, height),)
        return self.tiled(kernels.settle_and_rise, grid, names, numbers, cut, **more)

    # ------------------------------------------------------------------ the selection

    def plan_reduction(self) -> Launch:
        """Plan how the partial sums are added up."""
        from hierlearn.kernels.launch import Launch
        from hierlearn.kernels.select_triton import reduce_sums

        size = (self.parts, self.programs, self.classes)
        numbers = (*size, self.task.base.scale, float(self.rows * self.classes))
        shape = {"BG": min(64, up_to_power(self.parts)), "BC": 64}
        constants = {"MASKED": self.flags["MASKED"], "MEAN": self.task.mean, **shape}
        names = "partials counts sums stats"
        grid = (parts_of(self.classes, 64),)
        return Launch(reduce_sums, grid, names, numbers, constants, WARPS)

    def plan_selection(self) -> list[Launch]:
        """Plan the selection: one launch for few classes, several for many."""
        from hierlearn.kernels import select_triton as kernels
        from hierlearn.kernels.launch import Launch

        selection, rows = self.task.selection, float(self.rows)
        assert selection is not None
        kind = {"BY_ROWS": selection.by_rows, "FIXED": selection.fixed}
        if self.classes <= FEW:
            columns = max(32, up_to_power(self.classes))
            size: tuple[float, ...] = (self.parts, self.programs, self.classes, rows)
            entries = float(self.rows * self.classes)
            numbers: tuple[float, ...]
            numbers = (*size, self.task.base.scale, selection.floor, entries)
            flags = {"MASKED": self.flags["MASKED"], "MEAN": self.task.mean}
            shape = {"BG": min(32, up_to_power(self.parts)), "BC": columns}
            constants = {**flags, **kind, **shape}
            names = "partials counts threshold sums selected weights stats loss"
            return [Launch(kernels.settle, (1,), names, numbers, constants, WARPS)]
        search = "sums stats threshold amounts numbers bits totals"
        size = (self.classes, parts_of(self.classes, self.chunks), rows)
        shape = {**kind, "CHUNKS": self.chunks, "BK": 256}
        group = {False: min(GROUP, TRIALS), True: LEFT}
        probes = [
            Launch(
                kernels.probe,
                (self.chunks, 1 if final else TRIALS // group[final]),
                search,
                (turn, *size),
                {**shape, "GROUP": group[final], "FINAL": final},
                WARPS,
            )
            for turn, final in enumerate([False] * (TURNS - 1) + [True])
        ]
        names, numbers = f"{search} selected weights loss", (*size, selection.floor)
        last = Launch(kernels.finish, (self.chunks,), names, numbers, shape, WARPS)
        return [self.reduce, *probes, last]
