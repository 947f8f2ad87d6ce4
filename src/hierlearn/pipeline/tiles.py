"""Tiles: rows are computed in batches of one size, so that no answer depends on its neighbors.

A matmul of 100 rows may round differently from one of 512, and one that four threads share
differently from one of a single thread; softmax and the like take other paths for a few rows than
for many. So rows are always computed in tiles that have the same number of rows, each on one core,
and the last tile is filled up with copies of its last row. An answer is then the same, to the last
bit, whatever rows it is computed with: in one process or in many, from a file of two million rows
or in a batch of ten.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.networks.sparse import SparseRows
from hierlearn.pipeline.threads import in_order, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.links import HeadOutput
    from hierlearn.pipeline.pipeline import Pipeline

CPU = 128  # rows of a tile: a single row is filled up to it, and answers in 17 ms instead of 51
GPU = 4096


def tile_size(pipeline: Pipeline) -> int | None:
    """Return how many rows are computed at once; None where they are not computed in tiles.

    Backbones, convolutions and networks of others are not: filling up would cost too much there,
    and texts are padded to the longest of a batch anyway.
    """
    spec = pipeline.network_spec
    if spec is None or not is_ours(spec):
        return None
    return pipeline.batch_size(CPU if pipeline.device.type == "cpu" else GPU)


@torch.no_grad()
def batch_outputs(
    pipeline: Pipeline, inputs: Any, read: Callable[[HeadOutput], Tensor], *, tiled: bool = True
) -> Tensor:
    """Return (n, C) of what is read of the output to raw inputs, at most ``batch_size`` rows.

    Args:
        pipeline: the model, in evaluation mode.
        inputs: the rows.
        read: takes probabilities, or their logarithms, from the output of a tile.
        tiled: whether to compute in tiles where that is possible.
    """
    rows, size = pipeline.rows(inputs), tile_size(pipeline) if tiled else None
    if size is None:
        return tile_output(pipeline, rows, read)
    compute = partial(one_tile, pipeline, rows, size, read)
    return torch.cat([*in_order(compute, range(0, len(rows), size), tile_threads(pipeline))])


def one_tile(
    pipeline: Pipeline,
    rows: Tensor | SparseRows,
    size: int,
    read: Callable[[HeadOutput], Tensor],
    begin: int,
) -> Tensor:
    """Return what is read of the output to the rows of the tile that begins at a row."""
    return tile_output(pipeline, filled_tile(rows, begin, size), read)[: len(rows) - begin]


@torch.no_grad()
def tile_output(
    pipeline: Pipeline, rows: Tensor | SparseRows, read: Callable[[HeadOutput], Tensor]
) -> Tensor:
    """Return what is read of the output to rows, on the CPU."""
    return read(pipeline.scaled(pipeline.read(pipeline.network(rows)))).cpu()


def filled_tile(rows: Tensor | SparseRows, begin: int, size: int) -> Tensor | SparseRows:
    """Return ``size`` rows from ``begin`` on, the last row again and again where there are fewer.

    Args:
        rows: at least one from ``begin`` on.
        begin: the first of the tile.
        size: of the tile.
    """
    if not isinstance(rows, SparseRows):
        tile = rows[begin : begin + size]
        lacking = size - len(tile)
        return torch.cat([tile, tile[-1:].expand(lacking, *tile.shape[1:])]) if lacking else tile
    index = torch.arange(begin, begin + size, device=rows.offsets.device)
    return rows.take(index.clamp_max(len(rows) - 1))


def tile_threads(pipeline: Pipeline) -> int:
    """Return how many threads compute tiles side by side, each on one core; 0 for none."""
    threads = torch.get_num_threads()
    return threads if pipeline.device.type == "cpu" and threads > 1 else 0
