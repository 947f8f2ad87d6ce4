"""What a network gives for prepared rows: probabilities, and the embeddings that a memory holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.memory import Remembered
from hierlearn.memory.store import as_stored
from hierlearn.networks.memories import embed, memory_heads, set_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor, nn

    from hierlearn.links import HeadOutput
    from hierlearn.training.rows import Rows

FEW = 8  # rows at a time, so that many classes need little memory


@torch.no_grad()
def network_outputs(
    network: nn.Module, rows: Rows, batch: int, most: int | None = None
) -> Iterator[Any]:
    """Yield what a network gives in evaluation mode for rows in their order, batch by batch.

    Args:
        network: a network or an ensemble.
        rows: the rows.
        batch: how many rows at a time.
        most: only the first so many rows.
    """
    was_training = network.training
    network.eval()
    try:
        index = torch.arange(min(len(rows), most or len(rows)), device=rows.device)
        for part in torch.split(index, batch) if len(index) else ():
            yield network(rows.take(part))
    finally:
        network.train(was_training)


@torch.no_grad()
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
    found = (read(one).probabilities for one in network_outputs(network, rows, batch))
    parts = [p if p.dim() == 3 else p[None] for p in found]  # each (M, n, C)
    return list(torch.cat(parts, dim=1)) if parts else []


@torch.no_grad()
def non_finite_member(
    network: nn.Module, rows: Rows, read: Callable[[Any], HeadOutput], most: int = 64
) -> int | None:
    """Return the first member whose probabilities on the first rows are not finite, if any.

    The arguments are those of ``member_probabilities``; ``most`` is the number of rows.
    """
    wrong: set[int] = set()
    for found in network_outputs(network, rows, FEW, most):
        p = read(found).probabilities
        for member, one in enumerate(p if p.dim() == 3 else p[None]):
            if not bool(one.isfinite().all()):
                wrong.add(member)
    return min(wrong, default=None)


BATCH = 4096


def encode(network: nn.Module, rows: Rows, index: Tensor | None = None) -> dict[str, Tensor]:
    """Return the embeddings of rows by head, (N, D), or (M, N, D) of an ensemble.

    Args:
        network: a network with a memory, or an ensemble of them.
        rows: the rows.
        index: the numbers of the rows to encode; by default all.
    """
    numbers = torch.arange(len(rows)) if index is None else index
    starts = range(0, len(numbers), BATCH)
    return encode_batches(network, (rows.take(numbers[begin : begin + BATCH]) for begin in starts))


@torch.no_grad()
def encode_batches(network: nn.Module, batches: Iterable[Any]) -> dict[str, Tensor]:
    """Return the embeddings of inputs by head, in the precision in which they are stored.

    Args:
        network: a network with a memory, or an ensemble of them.
        batches: the inputs, as the network reads them; at least one batch.
    """
    was_training = network.training
    network.eval()
    parts: dict[str, list[Tensor]] = {name: [] for name in memory_heads(network)}
    for batch in batches:
        for name, found in embed(network, batch).items():
            parts[name].append(as_stored(found))
    network.train(was_training)
    return {name: torch.cat(found, dim=-2) for name, found in parts.items()}


def memorize(network: nn.Module, rows: Rows) -> None:
    """Fill the memory of a network with training rows; nothing where it has none.

    Rows of weight 0 are left out.
    """
    if not memory_heads(network):
        return
    weights = None if rows.weights is None else rows.weights.double().cpu().numpy()
    ids, labels = rows.named(), rows.label_sets
    if weights is None or weights.all():
        set_memory(network, encode(network, rows), Remembered(labels, ids, weights, rows.texts))
        return
    kept = np.flatnonzero(weights)
    known = Remembered(labels, ids, texts=rows.texts).take(kept)
    embeddings = encode(network, rows, torch.from_numpy(kept))
    set_memory(network, embeddings, replace(known, weights=weights[kept]))
