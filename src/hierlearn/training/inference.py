"""Inference: the one loop that runs a network over rows, in tiles and threads.

Validation, memories, pipelines, servers, engines and studies all compute by ``run_network``.

A matmul of 100 rows may round differently from one of 512, and one that four threads share
differently from one of a single thread; softmax and the like take other paths for a few rows than
for many. So a pipeline computes rows in tiles that have the same number of rows, each on one core,
and the last tile is filled up with copies of its last row. An answer is then the same, to the last
bit, whatever rows it is computed with: in one process or in many, from a file of two million rows
or in a batch of ten.

Torch and NumPy compute outside of Python's lock. Two threads with a batch each, every operation on
one core, keep two cores busier than one batch whose operations are divided between them: nothing
waits for the other half of a small operation, and rows are read and written meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from hierlearn.kernels.cpu import in_order
from hierlearn.memory import Remembered
from hierlearn.memory.store import as_stored
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.memories import embed, memory_heads, set_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor, nn

    from hierlearn.links import HeadOutput
    from hierlearn.training.rows import Rows

    Item = TypeVar("Item")
    Result = TypeVar("Result")

BATCH = 4096
FEW = 8  # rows at a time, so that many classes need little memory


def run_network(
    network: nn.Module,
    compute: Callable[[Item], Result],
    batches: Iterable[Item],
    *,
    threads: int = 0,
) -> Iterator[Result]:
    """Yield what is computed of batches of rows in their order, without gradients.

    The network is in evaluation mode meanwhile.

    Args:
        network: what computes.
        compute: takes a batch; the network, or a function that calls it.
        batches: the rows, taken one batch after another.
        threads: how many batches are computed side by side; 0 computes in the caller's thread.
    """
    was_training = network.training
    network.eval()
    try:
        yield from in_order(torch.no_grad()(compute), batches, threads)
    finally:
        if was_training:
            network.train()


def batches_of(rows: Rows, size: int, index: Tensor | None = None) -> Iterator[Any]:
    """Yield prepared rows in batches, as a network reads them; ``index`` names some of them."""
    index = torch.arange(len(rows), device=rows.device) if index is None else index
    return (rows.take(part) for part in torch.split(index, size) if len(part))


def member_probabilities(
    network: nn.Module, rows: Rows, read: Callable[[Any], HeadOutput], batch: int = 4096
) -> list[Tensor]:
    """Return (N, C) probabilities of every member on some rows.

    Args:
        network: a network or an ensemble.
        rows: the rows.
        read: turns what the network returns into one output.
        batch: how many rows at a time.
    """
    found = run_network(network, lambda x: read(network(x)).probabilities, batches_of(rows, batch))
    parts = [p if p.dim() == 3 else p[None] for p in found]  # each (M, n, C)
    return list(torch.cat(parts, dim=1)) if parts else []


def non_finite_member(
    network: nn.Module, rows: Rows, read: Callable[[Any], HeadOutput]
) -> int | None:
    """Return the first member whose probabilities on the first rows are not finite, if any."""
    first = torch.arange(min(len(rows), 64), device=rows.device)
    batches = batches_of(rows, FEW, first)
    wrong: set[int] = set()
    for p in run_network(network, lambda x: read(network(x)).probabilities, batches):
        finite = (p if p.dim() == 3 else p[None]).isfinite().flatten(1).all(dim=1)
        wrong.update((~finite).nonzero()[:, 0].tolist())
    return min(wrong, default=None)


def encode_batches(network: nn.Module, batches: Iterable[Any]) -> dict[str, Tensor]:
    """Return the embeddings of inputs by head, in the precision in which they are stored.

    Args:
        network: a network with a memory, or an ensemble of them.
        batches: the inputs, as the network reads them; at least one batch.
    """

    def compute(batch: Any) -> dict[str, Tensor]:
        return {name: as_stored(found) for name, found in embed(network, batch).items()}

    parts = [*run_network(network, compute, batches)]
    return {name: torch.cat([part[name] for part in parts], dim=-2) for name in parts[0]}


def memorize(network: nn.Module, rows: Rows) -> None:
    """Fill the memory of a network with training rows; nothing where it has none.

    Rows of weight 0 are left out.
    """
    if not memory_heads(network):
        return
    weights = None if rows.weights is None else rows.weights.double().cpu().numpy()
    ids, labels = rows.named(), rows.label_sets
    if weights is None or weights.all():
        set_memory(
            network,
            encode_batches(network, batches_of(rows, BATCH)),
            Remembered(labels, ids, weights, rows.texts),
        )
        return
    kept = np.flatnonzero(weights)
    known = Remembered(labels, ids, texts=rows.texts).take(kept)
    embeddings = encode_batches(network, batches_of(rows, BATCH, torch.from_numpy(kept)))
    set_memory(network, embeddings, replace(known, weights=weights[kept]))


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
