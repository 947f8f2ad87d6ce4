"""The optimizer of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from torch import nn

    from hierlearn.training.settings import Settings


def adamw(network: nn.Module, settings: Settings) -> torch.optim.AdamW:
    """Return AdamW on the parameters of a network; raise where none can be trained."""
    if not any(one.requires_grad for one in network.parameters()):
        raise HierlearnError(
            f"this {type(network).__name__} has no parameters to train; give it a head or an "
            f"encoder that learns"
        )
    return torch.optim.AdamW(
        network.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def hold_rate_on(device: torch.device, optimizer: torch.optim.Optimizer) -> None:
    """Hold the learning rate as a tensor on a device, so that a captured step reads it."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=device)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters, in place where it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
