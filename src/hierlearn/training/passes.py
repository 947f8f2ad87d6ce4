"""Passes over rows: the probabilities of every model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hierlearn.links import Link
    from hierlearn.training.rows import Rows


@torch.no_grad()
def member_probabilities(
    network: nn.Module, rows: Rows, link: Link, batch: int = 4096
) -> list[Tensor]:
    """Return (N, C) probabilities of every model on some rows."""
    was_training = network.training
    network.eval()
    parts: list[Tensor] = []  # each (M, n, C)
    for begin in range(0, len(rows), batch):
        index = torch.arange(begin, min(begin + batch, len(rows)), device=rows.device)
        logits = network(rows.batch(index)[0])
        members = logits if logits.dim() == 3 else logits[None]
        p = link.probabilities(members.flatten(0, 1))
        parts.append(p.view(members.shape))
    network.train(was_training)
    return list(torch.cat(parts, dim=1)) if parts else []
