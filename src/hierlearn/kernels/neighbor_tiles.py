"""The arrays between the kernels of the neighbor head: rows as parts, candidates sorted by set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.functional import pad

from hierlearn.kernels.hcl_arrays import FLOAT, INT, ceil_div, next_power_of_2

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.kernels.neighbor_table import SetTable

HIGHEST = 8  # the exponent of the largest number that is split into parts
KINDS = {"squared": 0, "euclidean": 1, "cosine": 2}


class Tiling(NamedTuple):
    """The entries that a program computes at once, and how Triton compiles it."""

    rows: int
    cols: int
    depth: int
    warps: int
    stages: int

    @property
    def constants(self) -> dict[str, int]:
        """What a kernel is compiled for."""
        return {"ROWS": self.rows, "COLS": self.cols, "DEPTH": self.depth}

    @property
    def options(self) -> dict[str, int]:
        """How it is compiled."""
        return {"num_warps": self.warps, "num_stages": self.stages}


# The fastest of those that were tried on an H200.
FORWARD = Tiling(rows=128, cols=64, depth=64, warps=4, stages=3)
BACKWARD = Tiling(rows=128, cols=64, depth=64, warps=4, stages=3)


class Comparison(NamedTuple):
    """What rows are compared by."""

    table: SetTable
    sets: Tensor  # (K,) the set of each candidate
    row_keys: Tensor | None  # (n,) rows and candidates of equal keys are not compared
    keys: Tensor | None  # (K,)
    distance: str  # a name of KINDS
    smoothing: float
    products: int = 3  # of float16 parts: 3 for float32, 1 for about TF32


class Origin(NamedTuple):
    """A point amid the candidates: distances from it are small, and their parts accurate."""

    center: Tensor | None  # (D,), or None where distances depend on the origin
    largest: Tensor  # () of the coordinates of the candidates, relative to it


class Parts(NamedTuple):
    """Rows, less a center and times a factor, as float16 parts."""

    rows: Tensor  # (N', 2 D'), hi and then lo; N' and D' are rounded up
    norms: Tensor  # (N',) of the rows themselves, squared
    factor: Tensor  # ()

    @property
    def width(self) -> int:
        """D'."""
        return self.rows.shape[1] // 2

    @property
    def high(self) -> Tensor:
        """(N', D') the high parts."""
        return self.rows[:, : self.width]

    @property
    def low(self) -> Tensor:
        """(N', D') the low parts."""
        return self.rows[:, self.width :]


class Sorted(NamedTuple):
    """The candidates in the order of their sets; those that pad have the set -1."""

    parts: Parts
    order: Tensor  # (K,) where each was before
    bias: Tensor  # (K',) log2 of their weights
    keys: Tensor  # (K',)
    sets: Tensor  # (K',)
    run: Tensor  # (K',) the number of the run of each
    run_begin: Tensor  # (S + 1,) the first run of each set
    run_tile: Tensor  # the tile of each run
    runs: int  # at most

    @property
    def padded(self) -> int:
        """K'."""
        return len(self.bias)


def powers_of_2(exponents: Tensor) -> Tensor:
    """Return 2 to these powers, which are kept away from overflow."""
    return torch.ldexp(torch.ones_like(exponents, dtype=FLOAT), exponents.clamp(-60, 60))


def factor_of(largest: Tensor) -> Tensor:
    """Return the power of 2 by which numbers up to ``largest`` fit into float16."""
    return powers_of_2(HIGHEST - torch.frexp(largest).exponent)


def split(
    x: Tensor,
    factor: Tensor,
    padded: int,
    *,
    center: Tensor | None = None,
    order: Tensor | None = None,
    row_factor: Tensor | None = None,
) -> Parts:
    """Return rows as float16 parts.

    Args:
        x: (N, D) float32, contiguous.
        factor: () by which they are multiplied.
        padded: N'.
        center: (D,) what is subtracted first.
        order: (N,) which row comes where; as they are by default.
        row_factor: (N,) by which each row is multiplied, too.
    """
    from hierlearn.kernels.neighbor_triton import split_rows

    depth = max(FORWARD.depth, BACKWARD.depth)
    width = ceil_div(x.shape[1], depth) * depth
    rows = x.new_empty(padded, 2 * width, dtype=torch.float16)
    norms = x.new_empty(padded)
    block, several = block_of(width)
    split_rows[(ceil_div(padded, several),)](
        *(x, x if order is None else order, x if center is None else center, factor),
        *(x if row_factor is None else row_factor, rows, norms, *x.shape),
        DP=width,
        ORDERED=order is not None,
        CENTERED=center is not None,
        SCALED=row_factor is not None,
        R=several,
        B=block,
    )
    return Parts(rows, norms, factor)


def block_of(width: int) -> tuple[int, int]:
    """Return how many columns and rows of a matrix of this width a program takes at once."""
    block = min(256, next_power_of_2(width))
    return block, 8


def origin_of(others: Tensor, distance: str) -> Origin:
    """Return the origin for candidates (K, D)."""
    if distance == "cosine":  # of length 1
        return Origin(None, others.new_ones(()))
    least, most = others.aminmax(dim=0)
    return Origin((least + most) / 2, (most - least).amax() / 2)


def sort_by_set(
    others: Tensor, origin: Origin, bias: Tensor | None, compared: Comparison
) -> Sorted:
    """Return the candidates in the order of their sets, with their runs; nothing waits for the GPU.

    Args:
        others: (K, D) float32, contiguous.
        origin: what is subtracted from them.
        bias: (K,) log2 of their weights.
        compared: the rest.
    """
    count, cols = len(others), FORWARD.cols
    padded = ceil_div(count, max(cols, BACKWARD.cols)) * max(cols, BACKWARD.cols)
    more = padded - count
    sets, order = compared.sets.sort(stable=True)
    begins = torch.arange(count, device=sets.device) % cols == 0
    begins[1:] |= sets[1:] != sets[:-1]
    run = begins.cumsum(0, dtype=INT) - 1
    numbers = torch.arange(compared.table.sets + 1, device=sets.device, dtype=sets.dtype)
    firsts = torch.searchsorted(sets, numbers)
    run_begin = torch.cat([run, run[-1:] + 1])[firsts]
    runs = min(compared.table.sets, count) + ceil_div(count, cols)
    run_tile = run.new_zeros(runs)
    run_tile[run] = torch.arange(count, device=sets.device, dtype=INT) // cols
    keys = sets if compared.keys is None else compared.keys[order]
    chosen = others.new_zeros(count) if bias is None else bias[order]
    return Sorted(
        split(others, factor_of(origin.largest), padded, center=origin.center, order=order),
        order,
        pad(chosen, (0, more), value=-torch.inf),
        pad(keys, (0, more)),
        pad(sets.to(INT), (0, more), value=-1),
        torch.cat([run, run[-1:].expand(more)]),
        run_begin,
        run_tile,
        runs,
    )


def matmul(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the float32 product of float16 matrices."""
    if a.is_cuda:
        options: dict[str, Any] = {"out_dtype": FLOAT}
        return torch.mm(a, b, **options) if out is None else torch.mm(a, b, out=out, **options)
    found = a.float() @ b.float()
    return found if out is None else out.copy_(found)
