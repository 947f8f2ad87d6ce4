"""Memorize: encode training rows, so that a network with a memory can answer from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.memory import Remembered
from hierlearn.memory.store import as_stored
from hierlearn.networks.memories import embed, memory_heads, set_memory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from hierlearn.training.rows import Rows

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
