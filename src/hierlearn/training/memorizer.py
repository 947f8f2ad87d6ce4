"""Memorizer: a training without steps. The memory is filled, and its scale is chosen.

For a memory that compares what a frozen encoder gives. A scale that is learned (``learn_scale``) is
the best of a sweep by leave-one-out likelihood, see memory/leave_one_out.py.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.errors import HierlearnError
from hierlearn.memory.leave_one_out import best_scale
from hierlearn.networks.memories import memory_heads
from hierlearn.training.memorize import memorize
from hierlearn.training.one_step import GradientFreeTrainer

if TYPE_CHECKING:
    from torch import nn

LEARNED = "scale.log_scale"  # the only parameter that a sweep can choose


def untrained(network: nn.Module, members: int) -> str | None:
    """Return why a network cannot do without training, or None."""
    if members > 1:
        return "members of an ensemble would be equal; use ensemble_size 1"
    if not memory_heads(network):
        return "the network has no memory; use the head neighbors"
    for name, value in network.named_parameters():
        if value.requires_grad and not name.endswith(LEARNED):
            return (
                f"{name} would stay random; use a memory without a projection "
                f"(head_options size=none) on the network embeddings, or optimizer adamw"
            )
    return None


class Memorizer(GradientFreeTrainer):
    """Fill a memory, and choose its scale."""

    def __init__(self, network: nn.Module, *args: Any, **options: Any) -> None:
        settings = args[2]
        reason = untrained(network, settings.ensemble_size)
        if reason is not None:
            raise HierlearnError(f"optimizer none trains nothing, but {reason}")
        super().__init__(network, *args, **options)

    def train(self) -> None:
        """Fill the memory, and choose the scale unless a checkpoint has it."""
        super().train()
        memorize(self.network, self.rows)

    def train_epoch(self) -> None:
        """Choose the scale of every memory, and report it as one epoch."""
        self.timeline.begin_epoch()
        self.timeline.enter("network")
        started = time.perf_counter()
        memorize(self.network, self.rows)
        self.timeline.enter("optimizer")
        found = [self._choose(head) for (head,) in memory_heads(self.network).values()]
        self.finish([found[0]], time.perf_counter() - started)

    @torch.no_grad()
    def _choose(self, head: Any) -> float | None:
        """Set the scale of a head, where it may change, and return its loss."""
        if head.scale.log_scale is None:
            return None
        scale, loss = best_scale(head, self.settings.seed)
        head.scale.log_scale.fill_(math.log(scale))
        return loss
