"""Memorize: encode training rows, so that a network with a memory can answer from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.memory import LabelSets, Remembered
from hierlearn.memory.store import as_stored
from hierlearn.networks.memories import embed, memory_heads, set_memory

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hierlearn.training.rows import Rows

BATCH = 4096


@torch.no_grad()
def encode(network: nn.Module, rows: Rows, batch: int = BATCH) -> dict[str, Tensor]:
    """Return the embeddings of rows by head, (N, D), or (M, N, D) of an ensemble.

    Args:
        network: a network with a memory, or an ensemble of them.
        rows: the rows.
        batch: how many rows at a time.
    """
    was_training = network.training
    network.eval()
    parts: dict[str, list[Tensor]] = {name: [] for name in memory_heads(network)}
    for begin in range(0, len(rows), batch):
        index = torch.arange(begin, min(begin + batch, len(rows)), device=rows.device)
        for name, found in embed(network, rows.take(index)).items():
            parts[name].append(as_stored(found))
    network.train(was_training)
    return {name: torch.cat(found, dim=-2) for name, found in parts.items()}


def memorize(network: nn.Module, rows: Rows) -> None:
    """Fill the memory of a network with training rows; nothing where it has none."""
    if not memory_heads(network):
        return
    weights = None if rows.weights is None else rows.weights.double().cpu().numpy()
    ids = rows.ids if rows.ids is not None else [str(number) for number in range(len(rows))]
    known = Remembered(LabelSets.from_labels(rows.labels), ids, weights, rows.texts)
    set_memory(network, encode(network, rows), known)
