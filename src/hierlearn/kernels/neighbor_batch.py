"""Batch: rows and candidates as the kernels of the neighbor head read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.functional import pad

from hierlearn.kernels import neighbor_tiles
from hierlearn.kernels.hcl_arrays import ceil_div
from hierlearn.kernels.neighbor_tiles import (
    KINDS,
    Comparison,
    Parts,
    Sorted,
    factor_of,
    origin_of,
    powers_of_2,
    sort_by_set,
    split,
)

if TYPE_CHECKING:
    from torch import Tensor

LOG2_E = 1.4426950408889634
HELD = 1 << 27  # entries of rows times label sets that are held at once


class Batch(NamedTuple):
    """Rows and candidates as the kernels read them."""

    rows: Parts
    row_keys: Tensor
    candidates: Sorted
    units: Tensor  # (3,) of inner products, of distances in logits, and of Euclidean ones
    compared: Comparison

    @property
    def kind(self) -> dict[str, Any]:
        """What the kernels of tiles are compiled for."""
        return {
            "DP": self.rows.width,
            "KIND": KINDS[self.compared.distance],
            "KEYED": self.compared.keys is not None,
            "PRODUCTS": self.compared.products,
        }

    def arrays(self, rows: slice) -> tuple[Tensor, ...]:
        """Return what the kernels of tiles read first, of some rows."""
        own, others = self.rows, self.candidates
        return (
            *(own.rows[rows], others.parts.rows, own.norms[rows], others.parts.norms),
            *(others.bias, self.row_keys[rows], others.keys),
        )


def prepare(
    q: Tensor, x: Tensor, weight: Tensor | None, scale: Tensor, compared: Comparison
) -> Batch:
    """Return rows and candidates as the kernels read them."""
    origin = origin_of(x, compared.distance)
    bias = None if weight is None else weight * LOG2_E
    candidates = sort_by_set(x, origin, bias, compared)
    height = max(neighbor_tiles.FORWARD.rows, neighbor_tiles.BACKWARD.rows)
    padded = ceil_div(len(q), height) * height
    largest = (q if origin.center is None else q - origin.center).abs().amax()
    rows = split(q, factor_of(largest), padded, center=origin.center)
    reach = powers_of_2(torch.frexp(largest).exponent)
    units = [1 / (rows.factor * candidates.parts.factor), LOG2_E / scale, reach]
    keys = compared.row_keys
    row_keys = candidates.keys if keys is None else pad(keys, (0, padded - len(q)))
    return Batch(rows, row_keys, candidates, torch.stack(units), compared)


def flat(batch: Batch) -> tuple[Tensor, ...]:
    """Return the tensors of a batch that the backward pass reads."""
    own, others = batch.rows, batch.candidates
    return (
        *(*own, batch.row_keys, batch.units, *others.parts),
        *(others.order, others.bias, others.keys, others.sets),
    )


def restored(tensors: tuple[Tensor, ...], compared: Comparison, runs: int) -> Batch:
    """Return the batch that ``flat`` took apart."""
    row_keys, units = tensors[3:5]
    order, bias, keys, sets = tensors[8:]
    # The backward pass does not read the runs.
    others = Sorted(Parts(*tensors[5:8]), order, bias, keys, sets, sets, sets, sets, runs)
    return Batch(Parts(*tensors[:3]), row_keys, others, units, compared)


def row_blocks(batch: Batch, count: int) -> list[slice]:
    """Return the blocks of rows that are computed one after another, to bound the memory."""
    height = max(neighbor_tiles.FORWARD.rows, neighbor_tiles.BACKWARD.rows)
    wide = max(batch.candidates.runs, batch.compared.table.classes)
    size = max(1, HELD // wide // height) * height
    return [slice(begin, min(begin + size, count)) for begin in range(0, count, size)]


def padded_rows(rows: slice, height: int) -> slice:
    """Return the rows of whole tiles."""
    return slice(rows.start, rows.start + ceil_div(rows.stop - rows.start, height) * height)
