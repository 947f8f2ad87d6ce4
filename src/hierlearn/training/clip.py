"""Clip: scale down the gradient of each model whose norm exceeds a limit.

    g <- g min(1, limit / (|g| + 1e-6))

as torch's ``clip_grad_norm_`` does for a model alone; the norms of stacked models are apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

TINY = 1e-6  # torch's own


def clip_members(parameters: Iterable[nn.Parameter], limit: float) -> None:
    """Clip the gradients of stacked models, each with its first dimension as the model."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)  # (M,)
    scale = (limit / (norms + TINY)).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))
