"""The memory solver: the memory is filled, and its scale is chosen; nothing else is trained.

For a memory that compares what a frozen encoder gives. A scale that is learned (``learn_scale``) is
the best of a sweep by leave-one-out likelihood, see memory/leave_one_out.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError, arg
from hierlearn.memory.compare import best_scale
from hierlearn.networks.memories import memory_heads
from hierlearn.training.inference import memorize
from hierlearn.training.solvers.solver import fit_at_once

if TYPE_CHECKING:
    from torch import nn

    from hierlearn.training.prepare import Prepared
    from hierlearn.training.solvers.solver import Fitted, Run

LEARNED = "scale.log_scale"  # the only parameter that a sweep can choose


def untrained(network: nn.Module, members: int) -> str | None:
    """Return why a network cannot do without training, or None."""
    if members > 1:
        return f"members of an ensemble would be equal; use {arg('ensemble_size')} 1"
    if not memory_heads(network):
        return "the network has no memory; use the head neighbors"
    for name, value in network.named_parameters():
        if value.requires_grad and not name.endswith(LEARNED):
            return (
                f"{name} would stay random; use a memory without a projection "
                f"({arg('head_options')} size=none) on the network embeddings, or optimizer adamw"
            )
    return None


class MemorySolver:
    """Fill a memory, and choose its scale; see ``Solver``."""

    def steps(self, prepared: Prepared) -> int:
        """Return 1."""
        del prepared
        return 1

    def fit(self, prepared: Prepared, run: Run) -> Fitted:
        """Fill the memory, and choose the scale unless a checkpoint has it."""
        network, settings = prepared.network, prepared.decision.settings
        reason = untrained(network, settings.ensemble_size)
        if reason is not None:
            raise HierlearnError(f"optimizer none trains nothing, but {reason}")

        @torch.no_grad()
        def choose_scales() -> list[float | None]:
            run.timeline.enter("network")
            memorize(network, prepared.rows)
            run.timeline.enter("optimizer")
            losses: list[float | None] = []
            for (head,) in memory_heads(network).values():
                losses.append(None)
                if head.scale.log_scale is not None:
                    scale, losses[-1] = best_scale(head, settings.seed)
                    head.scale.log_scale.fill_(math.log(scale))
            return losses[:1]

        fitted = fit_at_once(prepared, run, choose_scales)
        memorize(network, prepared.rows)  # which a checkpoint does not hold
        return fitted
