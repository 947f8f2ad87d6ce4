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

from hierlearn.kernels import choose, neighbor_batch
from hierlearn.kernels.autograd import with_gradients
from hierlearn.kernels.choose import FLOATS, has_triton, takes_plain
from hierlearn.kernels.neighbor_batch import (
    KINDS,
    LIGHT,
    Batch,
    launch,
    padded_rows,
    prepare,
    row_block,
    row_blocks,
)
from hierlearn.kernels.plan import FLOAT, ceil_div, device_context, next_power_of_2

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.kernels.neighbor_batch import Comparison, Runs

    Pair = tuple[Tensor, Tensor]
    Plain = Callable[[Tensor, Tensor, Tensor | None, Tensor], Pair]

CHUNK = 1 << 25  # entries of rows times candidates whose gradients are held at once
HIGHEST = {"squared": 14, "euclidean": 2, "cosine": 14}  # powers of 2 that fit into float16


def gradients(
    batch: Batch,
    saved: tuple[Any, ...],
    grads: tuple[Tensor | None, Tensor | None],
    needed: tuple[bool, ...],
) -> list[Tensor | None]:
    """Return the gradients of queries, candidates, log weights and scale.

    Args:
        batch: rows and candidates.
        saved: what the forward pass was given and returned, its peaks and totals.
        grads: of the answers.
        needed: which of the four gradients.
    """
    from hierlearn.kernels import neighbor_triton as kernels

    q, x, _, scale, log_p, log_not_p, peak, total = saved
    compared, width, tiling = batch.compared, batch.width, neighbor_batch.BACKWARD
    is_euclidean, full = compared.distance == "euclidean", compared.products == 3
    block = row_block(width)
    shape = {"DP": width, "KIND": KINDS[compared.distance]}
    tiles = batch.padded // tiling.cols
    inverse = q.new_zeros(len(batch.rows))  # of the factor of each row
    of_rows = torch.empty_like(q)
    columns = q.new_empty(batch.padded, width)  # (K', D'), in the unit of the first block
    added: dict[str, Tensor] = {}
    arrays: tuple[Any, ...]
    first = inverse
    for rows in row_blocks(batch, len(q)):
        own = [None if one is None else one[rows].contiguous() for one in grads]
        given = (log_p[rows], log_not_p[rows], *own)
        by_set = set_gradients(batch, given, total[rows], inverse[rows])
        whole = padded_rows(rows, tiling.rows)
        count, height = len(by_set), whole.stop - whole.start
        row_tiles = height // tiling.rows
        sums = {
            "rows": by_set.new_empty(height, tiles if is_euclidean else 0),
            "columns": by_set.new_empty(row_tiles, batch.padded),
            "bias": by_set.new_empty(row_tiles, batch.padded if needed[2] else 0),
            "scale": by_set.new_empty(row_tiles, tiles if needed[3] else 0),
        }
        largest = inverse[whole].amax()
        first = first if added else largest
        weighted = batch.rows.new_empty(3 * height if needed[1] else 0, width)
        if needed[1]:  # the parts of rows over their factors, as candidates get them
            arrays = (batch.rows[whole], inverse[whole], largest, weighted)
            grid = (ceil_div(height, block["R"]),)
            launch(kernels.weigh_rows, grid, arrays, (height,), {"DP": width, **block})
        step = min(max(CHUNK // height // tiling.cols, 1) * tiling.cols, batch.padded)
        planes = by_set.new_empty(3 if full else 1, height, step, dtype=torch.float16)
        found = (min(len(planes), 2) * height, (2 if full else 1) * width)
        products, product = by_set.new_empty(2, *found)
        for begin in range(0, batch.padded, step):
            cols = slice(begin, min(begin + step, batch.padded))
            size = cols.stop - begin
            part = planes.view(-1)[: len(planes) * height * size].view(-1, size)
            arrays = (*batch.arrays(whole), batch.sets, batch.units)
            arrays += (peak[whole], by_set, inverse[whole], part, *sums.values())
            launch(
                kernels.pair_gradients,
                (row_tiles * (size // tiling.cols),),
                arrays,
                (count, row_tiles, compared.table.sets, begin, size, tiles, batch.padded),
                {**batch.kind, "SCALE": needed[3], "BIAS": needed[2]} | tiling.constants,
                tiling.options,
            )
            if needed[0]:
                parts = batch.parts[cols] if full else batch.parts[cols, :width]
                more = matmul(part[: 2 * height], parts, product if begin else products)
                if begin:
                    products += more
            if needed[1] and added:
                more = matmul(part.t(), weighted[: len(part)], columns.new_empty(size, width))
                columns[cols] += more * (largest / first)
            elif needed[1]:
                matmul(part.t(), weighted[: len(part)], columns[cols])
        if needed[0]:
            row_sums = sums["rows"].sum(1) if is_euclidean else by_set
            arrays = (products, batch.rows[rows], row_sums, inverse[rows], batch.units, scale)
            grid, numbers = (ceil_div(count, block["R"]),), (count, len(products) // 2, q.shape[1])
            constants = {**shape, "PRODUCTS": compared.products, **block}
            launch(kernels.finish_rows, grid, (*arrays, of_rows[rows]), numbers, constants)
        for name in ("columns", "bias", "scale"):
            one = sums[name].sum() if name == "scale" else sums[name].sum(0)
            added[name] = added[name] + one if name in added else one

    results: list[Tensor | None] = [of_rows if needed[0] else None, None, None, None]
    if needed[1]:
        results[1] = out = torch.empty_like(x)
        arrays = (columns, batch.parts, added["columns"], batch.order, first, batch.units, scale)
        grid = (ceil_div(len(x), block["R"]),)
        launch(kernels.finish_candidates, grid, (*arrays, out), tuple(x.shape), {**shape, **block})
    if needed[2]:
        results[2] = x.new_empty(len(x)).index_copy_(0, batch.order, added["bias"][: len(x)])
    if needed[3]:
        results[3] = added["scale"] / scale.square()
    return results


def set_gradients(batch: Batch, given: tuple[Any, ...], total: Tensor, inverse: Tensor) -> Tensor:
    """Return (n, S) what candidates of each set get, times a factor of the row.

    Args:
        batch: rows and candidates.
        given: the answers of some rows, and their gradients.
        total: (n,) the sums of their masses.
        inverse: (n,) where the inverses of the factors are written.
    """
    from hierlearn.kernels import neighbor_triton as sums_triton

    log_p, _, grad_p, grad_not_p = given
    table, count = batch.compared.table, len(log_p)
    by_class, bounds = torch.empty_like(log_p), log_p.new_empty(count)
    means = torch.empty_like(total)
    arrays = (*(log_p if one is None else one for one in given), by_class, means, bounds)
    constants: dict[str, Any] = {"HAS_P": grad_p is not None, "HAS_NOT_P": grad_not_p is not None}
    constants |= {"B": min(1024, next_power_of_2(table.classes))}
    numbers = (table.classes, batch.compared.smoothing)
    launch(sums_triton.class_gradients, (count,), arrays, numbers, constants)
    on_device = table.on(log_p.device)
    by_set: Tensor = log_p.new_empty(count, table.sets)
    block = min(512, next_power_of_2(table.sets))
    arrays = (by_class, means, bounds, total, on_device.set_offsets, on_device.set_classes)
    launch(
        sums_triton.set_gradients,
        (ceil_div(table.sets, block), count),
        (*arrays, by_set, inverse),
        (table.sets, table.classes),
        {"HIGHEST": HIGHEST[batch.compared.distance], "B": block},
    )
    return by_set


def matmul(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Write the float32 product of float16 matrices."""
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=FLOAT, out=out)
    return out.copy_(a.float() @ b.float())


LEAST = 1 << 20  # rows times candidates from which the kernels are faster than the plain path


def can_use(queries: Tensor, others: Tensor) -> bool:
    """Whether the kernels take these embeddings, and are worthwhile."""
    return (
        choose.is_on_gpu(queries)
        and queries.dtype == others.dtype
        and queries.dtype in FLOATS
        and is_worthwhile(queries.shape[-2], others.shape[-2])
        and not takes_plain(queries)
        and has_room(queries.device)
    )


def is_worthwhile(rows: int, candidates: int) -> bool:
    """Whether the kernels would be faster than the plain path."""
    return rows * candidates >= LEAST and has_triton()


@lru_cache(maxsize=16)
def has_room(device: torch.device) -> bool:
    """Whether the multiprocessors of a GPU have the memory that tiles need."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


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
    inputs = (q, x, weight, scale.float())
    given = q.detach(), x.detach(), None if weight is None else weight.detach(), inputs[3].detach()
    with device_context(q.device):
        batch, runs = prepare(*given, compared)
        log_p, log_not_p = (q.new_empty(len(q), compared.table.classes) for _ in range(2))
        peak = q.new_zeros(len(batch.rows))
        total = q.new_empty(len(q), dtype=torch.float64)
        for rows in row_blocks(batch, len(q)):
            answer(batch, runs, rows, (log_p, log_not_p, peak, total))

    def backward(saved: Any, grads: Any, needed: Any) -> list[Tensor | None]:
        batch = Batch(*(*saved[8:], compared))
        with device_context(saved[0].device):
            return gradients(batch, saved[:8], grads, needed)

    saved = (*given, log_p, log_not_p, peak, total, *batch[:-1])
    pair = with_gradients((log_p, log_not_p), inputs, backward, plain, saved)
    return pair[0].to(queries.dtype), pair[1].to(queries.dtype)


def answer(batch: Batch, runs: Runs, rows: slice, out: tuple[Tensor, ...]) -> None:
    """Write the answers of some rows, their largest logits, and the sums relative to these."""
    from hierlearn.kernels import neighbor_triton as sums_triton
    from hierlearn.kernels.neighbor_triton import sum_runs

    tiling, table = neighbor_batch.FORWARD, batch.compared.table
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
