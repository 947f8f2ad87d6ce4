"""Passes over rows: the mean loss of weighted rows, and the probabilities of every model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.losses import HCLLoss, Loss

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hierlearn.links import Link
    from hierlearn.training.processes import Processes
    from hierlearn.training.rows import Rows


def weighted_mean(
    loss: Any,
    logits: Tensor,
    targets: Tensor,
    mask: Tensor | None,
    weights: Tensor,
    processes: Processes,
) -> Tensor:
    """Return the mean of a loss where a row counts as its weight says.

    A row of weight 2 is as good as two rows, in what a curriculum selects too.
    """
    parts = [part for part in loss.modules() if isinstance(part, Loss)]  # a mixed loss has several
    before = [part.reduction for part in parts]
    try:
        for part in parts:
            part.reduction = "none"
            if isinstance(part, HCLLoss):
                part.row_weights = weights
        values: Tensor = loss(logits, targets, mask)  # (N, C) or (N,)
    finally:
        for part, reduction in zip(parts, before, strict=True):
            part.reduction = reduction
            if isinstance(part, HCLLoss):
                part.row_weights = None
    known = torch.ones_like(targets, dtype=torch.bool) if mask is None else mask
    if values.dim() == 2:
        counted, weights = known, weights[:, None]
    else:  # the mean of a loss of rows is over those with a label
        counted = ((targets > 0) & known).any(dim=1)
    count = processes.total((counted * weights).sum()).clamp_min(1e-12)
    return (values * weights).sum() / count.to(values.dtype) * processes.world


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
        parts.append(torch.stack([link.probabilities(one) for one in members]))
    network.train(was_training)
    return list(torch.cat(parts, dim=1)) if parts else []
