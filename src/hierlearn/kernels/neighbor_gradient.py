"""The gradients of the neighbor head by Triton kernels and matmuls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from hierlearn.kernels import neighbor_tiles
from hierlearn.kernels.hcl_arrays import FLOAT, ceil_div, next_power_of_2
from hierlearn.kernels.neighbor_batch import padded_rows, row_blocks
from hierlearn.kernels.neighbor_tiles import block_of, factor_of, matmul, powers_of_2

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.kernels.neighbor_batch import Batch

LOW_BITS = 2048.0  # as in neighbor_triton.py
CHUNK = 1 << 25  # entries of rows times candidates whose gradients are held at once


def gradients(
    batch: Batch,
    saved: tuple[Any, ...],
    grads: tuple[Tensor | None, Tensor | None],
    needed: tuple[bool, ...],
) -> list[Tensor | None]:
    """Return the gradients of queries, candidates, log weights and scale."""
    from hierlearn.kernels.neighbor_triton import finish_rows

    q, x, _, scale, log_p, log_not_p, peak, total = saved
    kind, others = batch.compared.distance, batch.candidates
    width = batch.rows.width
    found = _Found(batch, q, needed)
    for rows in row_blocks(batch, len(q)):
        own = [None if one is None else one[rows].contiguous() for one in grads]
        given, inverse = set_gradients(
            batch, (log_p[rows], log_not_p[rows], *own), 1 / total[rows].where(total[rows] > 0, 1)
        )
        found.add(rows, given, inverse, peak)
    change = (1 if kind == "cosine" else 2) / scale
    if kind == "euclidean":
        change = change / batch.units[2]
    block, several = block_of(width)
    results: list[Tensor | None] = [None] * 4
    constants = {"DP": width, "R": several, "B": block}
    if needed[0]:
        results[0] = torch.empty_like(q)
        units = torch.stack([change / others.parts.factor, change / batch.rows.factor])
        finish_rows[(ceil_div(len(q), several),)](
            *(found.rows, batch.rows.rows, found.row_sums, found.inverse, found.inverse),
            *(units, results[0], *q.shape),
            OWN=kind == "euclidean",
            SCALED=True,
            ORDERED=False,
            **constants,
        )
    if needed[1]:
        results[1] = torch.empty_like(x)
        units = torch.stack([change * found.unit, change / others.parts.factor])
        finish_rows[(ceil_div(len(x), several),)](
            *(found.columns, others.parts.rows, found.column_sums, others.order, others.order),
            *(units, results[1], *x.shape),
            OWN=kind != "cosine",
            SCALED=False,
            ORDERED=True,
            **constants,
        )
    if needed[2]:
        results[2] = torch.empty_like(x[:, 0]).index_copy_(0, others.order, found.bias[: len(x)])
    if needed[3]:
        results[3] = found.scale / scale.square()
    return results


def set_gradients(
    batch: Batch, given: tuple[Any, ...], inverse_total: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what candidates of each set get per unit of exp(l - peak), times a factor of the row.

    Args:
        batch: rows and candidates.
        given: the answers of some rows, and their gradients.
        inverse_total: (n,) what their masses are multiplied by; 1 where there are none.

    Returns:
        (n, S) what they get, and (n,) the inverse of the factor.
    """
    from hierlearn.kernels import neighbor_sums_triton as sums_triton

    log_p, _, grad_p, grad_not_p = given
    table, count = batch.compared.table, len(log_p)
    by_class = torch.empty_like(log_p)
    means, bounds = log_p.new_empty(count).double(), log_p.new_empty(count)
    sums_triton.class_gradients[(count,)](
        *(log_p if one is None else one for one in given),
        *(by_class, means, bounds, table.classes, batch.compared.smoothing),
        HAS_P=grad_p is not None,
        HAS_NOT_P=grad_not_p is not None,
        B=min(1024, next_power_of_2(table.classes)),
    )
    highest = 2 if batch.compared.distance == "euclidean" else 14
    factor = powers_of_2(highest - torch.frexp(bounds).exponent)
    arrays = table.on(log_p.device)
    by_set = log_p.new_empty(count, table.sets)
    block = min(512, next_power_of_2(table.sets))
    sums_triton.set_gradients[(ceil_div(table.sets, block), count)](
        *(by_class, means, (factor * inverse_total).to(FLOAT)),
        *(arrays.set_offsets, arrays.set_classes, by_set, table.sets, table.classes),
        B=block,
    )
    return by_set, 1 / factor


class _Found:
    """The gradients of a batch, added up over blocks of its rows."""

    def __init__(self, batch: Batch, q: Tensor, needed: tuple[bool, ...]) -> None:
        self.batch, self.needed = batch, needed
        padded, width = batch.candidates.padded, batch.rows.width
        self.rows = q.new_zeros(len(q), width)
        self.row_sums, self.inverse = q.new_zeros(2, len(q))
        self.columns = q.new_empty(padded, width)  # (K', D')
        self.column_sums, self.bias = q.new_zeros(2, padded)
        self.scale = q.new_zeros(())
        self.unit = self.scale  # of the columns

    def add(self, rows: slice, given: Tensor, inverse: Tensor, peak: Tensor) -> None:
        """Take up some rows, given what candidates of each set get."""
        batch, tiling = self.batch, neighbor_tiles.BACKWARD
        others, count = batch.candidates, len(given)
        whole = padded_rows(rows, tiling.rows)
        height = whole.stop - whole.start
        row_tiles, tiles = height // tiling.rows, others.padded // tiling.cols
        width = min(max(CHUNK // height // tiling.cols, 1) * tiling.cols, others.padded)
        self.inverse[rows] = inverse
        lowered = pad(inverse, (0, height - count))
        weighted = self.weighted_rows(rows, inverse, height)
        parts = given.new_empty(2, height, width, dtype=torch.float16)
        row_sums = given.new_empty(height, tiles if batch.compared.distance == "euclidean" else 0)
        scale_sums = given.new_empty(height, tiles if self.needed[3] else 0)
        column_sums, bias_sums = given.new_empty(2, row_tiles, others.padded)
        for begin in range(0, others.padded, width):
            end = min(begin + width, others.padded)
            part = parts.view(-1)[: 2 * height * (end - begin)].view(2, height, end - begin)
            self.launch(
                (whole, begin, end),
                (peak[whole], given, lowered),
                (part, row_sums, column_sums, bias_sums, scale_sums),
            )
            self.multiply(rows, slice(begin, end), part, weighted)
        if batch.compared.distance == "euclidean":
            self.row_sums[rows] = row_sums[:count].sum(1)
        if batch.compared.distance != "cosine":
            self.column_sums += column_sums.sum(0)
        if self.needed[2]:
            self.bias += bias_sums.sum(0)
        if self.needed[3]:
            self.scale += (scale_sums.sum(1) * lowered).sum()

    def launch(
        self, where: tuple[slice, int, int], given: tuple[Tensor, ...], out: tuple[Tensor, ...]
    ) -> None:
        """Write the gradients of the logits of some rows and columns."""
        from hierlearn.kernels.neighbor_triton import pair_gradients

        batch, tiling = self.batch, neighbor_tiles.BACKWARD
        whole, begin, end = where
        row_tiles = (whole.stop - whole.start) // tiling.rows
        peak, by_set, lowered = given
        padded = batch.candidates.padded
        pair_gradients[(row_tiles * ((end - begin) // tiling.cols),)](
            *(*batch.arrays(whole), batch.candidates.sets, batch.units, peak, by_set, lowered),
            *(*out, len(by_set), row_tiles, batch.compared.table.sets, begin, end - begin),
            *(padded // tiling.cols, padded),
            **batch.kind,
            SCALE=self.needed[3],
            BIAS=self.needed[2],
            **tiling.constants,
            **tiling.options,
        )

    def weighted_rows(
        self, rows: slice, inverse: Tensor, height: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows over their factors as parts: hi and what lo needs, lo, and the unit."""
        own = self.batch.rows
        value = (own.high[rows].float() + own.low[rows].float()) * inverse[:, None]
        factor = factor_of(value.abs().amax())
        value = pad(value * factor, (0, 0, 0, height - len(value)))
        high = value.half()
        low = (value - high.float()).half()
        return torch.cat([high, high / LOW_BITS]), low, 1 / (own.factor * factor)

    def multiply(
        self, rows: slice, cols: slice, part: Tensor, weighted: tuple[Tensor, ...]
    ) -> None:
        """Add the products of the gradients of some rows and columns with both embeddings."""
        count, width = rows.stop - rows.start, self.batch.rows.width
        high, low = part
        x = self.batch.candidates.parts.rows[cols]
        full = self.batch.compared.products == 3
        if self.needed[0]:
            found = matmul(high, x if full else x[:, :width])
            if full:
                low_part = matmul(low, x[:, :width])
                found = found[:, :width] + found[:, width:] + low_part / LOW_BITS
            self.rows[rows] += found[:count]
        if not self.needed[1]:
            return
        both, rest, unit = weighted
        is_first = rows.start == 0
        out = self.columns[cols] if is_first else None
        if full:
            found = matmul(part.view(-1, part.shape[-1]).t(), both, out)
            found += matmul(high.t(), rest)
        else:
            found = matmul(high.t(), both[: len(high)], out)
        if is_first:
            self.unit = unit
        else:
            self.columns[cols] += found * (unit / self.unit)
