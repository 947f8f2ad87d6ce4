"""The neighbor head by Triton kernels, under autograd.

Forward: candidates are sorted by label set; every tile of distances is reduced on chip to the sums
of its label sets, and these to classes. Backward: tiles are computed again, a few columns at a
time, and two matmuls of what they leave give the gradients of both embeddings. Kept in between are
the embeddings, twice, and the answers; rows times candidates are never held, rows times label sets
are held in blocks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.kernels import neighbor_launch
from hierlearn.kernels.hcl_arrays import ceil_div, device_context, next_power_of_2
from hierlearn.kernels.hcl_spec import has_triton
from hierlearn.kernels.neighbor_batch import Batch, padded_rows, prepare, row_blocks
from hierlearn.kernels.neighbor_gradient import gradients
from hierlearn.kernels.neighbor_launch import launch
from hierlearn.kernels.neighbor_table import LIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.kernels.neighbor_batch import Comparison, Runs

    Pair = tuple[Tensor, Tensor]
    Plain = Callable[[Tensor, Tensor, Tensor | None, Tensor], Pair]

LEAST = 1 << 20  # rows times candidates from which the kernels are faster than the plain path
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def can_use(queries: Tensor, others: Tensor) -> bool:
    """Whether the kernels take these embeddings, and are worthwhile."""
    return (
        not torch.compiler.is_compiling()
        and is_on_gpu(queries)
        and queries.dtype == others.dtype
        and queries.dtype in FLOATS
        and is_worthwhile(queries.shape[-2], others.shape[-2])
        and not torch._C._are_functorch_transforms_active()
    )


def is_worthwhile(rows: int, candidates: int) -> bool:
    """Whether the kernels would be faster than the plain path."""
    return rows * candidates >= LEAST and has_triton()


def is_on_gpu(x: Tensor) -> bool:
    """Whether a tensor is on a GPU whose multiprocessors have the memory that tiles need."""
    return x.is_cuda and has_room(x.device)


@lru_cache(maxsize=16)
def has_room(device: torch.device) -> bool:
    """Whether a GPU is of compute capability 8.0 or higher."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def products() -> int:
    """Return how many products of parts an inner product takes, by torch's setting for matmuls."""
    return 3 if torch.get_float32_matmul_precision() == "highest" else 1


def neighbor_pair(
    queries: Tensor,
    others: Tensor,
    log_weight: Tensor | None,
    scale: Tensor,
    compared: Comparison,
    plain: Plain,
) -> Pair:
    """Return (n, C) log p' and log q' of the answers, see memory/head.py.

    Args:
        queries: (n, D) embeddings of the rows, of length 1 for the distance "cosine".
        others: (K, D) embeddings of the candidates, likewise.
        log_weight: (K,) log weights; None for all alike.
        scale: () what distances are divided by.
        compared: what else the answers depend on.
        plain: the same as a differentiable function of the first four; computes a gradient that is
            differentiated again.
    """
    q, x = queries.float().contiguous(), others.float().contiguous()
    weight = None if log_weight is None else log_weight.float().contiguous()
    options = (compared, plain)
    pair = _NeighborPair.apply(q, x, weight, scale.float(), options)  # type: ignore[no-untyped-call]
    return pair[0].to(queries.dtype), pair[1].to(queries.dtype)


class _NeighborPair(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, x: Tensor, weight: Tensor | None, scale: Tensor, options: Any
    ) -> Pair:
        compared, plain = options
        with device_context(q.device):
            batch, runs = prepare(q, x, weight, scale, compared)
            log_p, log_not_p = q.new_empty(2, len(q), compared.table.classes)
            peak = q.new_zeros(len(batch.rows))
            total = q.new_empty(len(q), dtype=torch.float64)
            for rows in row_blocks(batch, len(q)):
                answer(batch, runs, rows, (log_p, log_not_p, peak, total))
        ctx.save_for_backward(q, x, weight, scale, log_p, log_not_p, peak, total, *batch[:-1])
        ctx.compared, ctx.plain = compared, plain
        ctx.set_materialize_grads(False)
        return log_p, log_not_p

    @staticmethod
    def backward(
        ctx: Any, grad_p: Tensor | None, grad_not_p: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        if grad_p is None and grad_not_p is None:
            return None, None, None, None, None
        saved: Any = ctx.saved_tensors
        if torch.is_grad_enabled():
            return differentiable(ctx, saved[:4], (grad_p, grad_not_p))
        batch = Batch(*(*saved[8:], ctx.compared))
        with device_context(saved[0].device):
            found = gradients(batch, saved[:8], (grad_p, grad_not_p), ctx.needs_input_grad)
        return (*found, None)


def differentiable(
    ctx: Any, inputs: tuple[Any, ...], grads: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...]:
    """Return gradients that can be differentiated, by the caller's function."""
    pairs = zip(ctx.plain(*inputs), grads, strict=True)
    used = [(one, grad) for one, grad in pairs if grad is not None]
    wanted = [number for number in range(4) if ctx.needs_input_grad[number]]
    values = torch.autograd.grad(
        [one for one, _ in used],
        [inputs[number] for number in wanted],
        [grad for _, grad in used],
        create_graph=True,
        allow_unused=True,
    )
    found: list[Tensor | None] = [None] * 5
    for number, value in zip(wanted, values, strict=True):
        found[number] = value
    return tuple(found)


def answer(batch: Batch, runs: Runs, rows: slice, out: tuple[Tensor, ...]) -> None:
    """Write the answers of some rows, their largest logits, and the sums relative to these."""
    from hierlearn.kernels import neighbor_sums_triton as sums_triton
    from hierlearn.kernels.neighbor_triton import sum_runs

    tiling, table = neighbor_launch.FORWARD, batch.compared.table
    log_p, log_not_p, peak, total = (one[rows] for one in out)
    count, row_tiles = len(log_p), ceil_div(len(log_p), tiling.rows)
    sums, peaks = log_p.new_empty(count, runs.most), log_p.new_empty(count, runs.tiles)
    arrays = (*batch.arrays(padded_rows(rows, tiling.rows)), runs.run, batch.units, sums, peaks)
    launch(
        sum_runs,
        (row_tiles * runs.tiles,),
        arrays,
        (count, row_tiles, runs.most, runs.tiles),
        batch.kind | tiling.constants,
        tiling.options,
    )
    masses = log_p.new_empty(count, table.sets)
    at_once = min(next_power_of_2(ceil_div(runs.tiles, table.sets) + 1), 256)
    launch(
        sums_triton.sum_sets,
        (count,),
        (sums, peaks, runs.begin, runs.end, runs.tile, masses, peak, total),
        (runs.most, runs.tiles, table.sets),
        {"SETS": max(2048 // at_once, 8), "RUNS": at_once, "B": 1024},
    )
    on_device = table.on(log_p.device)
    arrays = (masses, total, on_device.class_offsets, on_device.class_sets)
    numbers = (table.sets, table.classes, batch.compared.smoothing)
    block = min(512, next_power_of_2(table.classes))
    grid = (ceil_div(table.classes, block), count)
    constants = {"LIGHT": LIGHT, "B": block}
    launch(sums_triton.sum_classes, grid, (*arrays, log_p, log_not_p), numbers, constants)
    if len(on_device.heavy):
        arrays = (*arrays, on_device.heavy, log_p, log_not_p)
        grid = (len(on_device.heavy), count)
        launch(sums_triton.sum_heavy_classes, grid, arrays, numbers, {"B": 256}, {"num_warps": 2})
