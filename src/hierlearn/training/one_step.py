"""OneStepTrainer: a training that is done at once, such as a convex one or a memory.

A GradientFreeTrainer changes no weights by gradients: a memory, or trees.
"""

from __future__ import annotations

from typing import Any

import torch

from hierlearn.training.trainer import Trainer


class OneStepTrainer(Trainer):
    """A training of one epoch of one step; subclasses say how in ``train_epoch``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.steps_per_epoch = self.steps = 1

    def train(self) -> None:
        """Do what ``train_epoch`` does, unless a checkpoint has it."""
        if not self.finished:
            self.train_epoch()
        self.stopping.restore()

    def finish(self, losses: list[float | None], seconds: float) -> None:
        """Validate, report the step as an epoch, and save it.

        Args:
            losses: of every member; None where there is none.
            seconds: that the step took.
        """
        self.step = self.steps
        record: dict[str, Any] = {
            "epoch": 1,
            "step": self.step,
            "learning_rate": 0.0,
            "loss": losses,
            "seconds": round(seconds, 4),
        }
        if self.valid is not None:
            record["valid"] = self._validate(0)
        if self.on_step is not None:
            self.on_step(self.step)
        if self.on_epoch is not None and self.processes.writes:
            self.on_epoch(record)
        self._checkpoint()
        self.timeline.end_epoch()


class GradientFreeTrainer(OneStepTrainer):
    """A training without gradients; every process does the same."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return an optimizer of nothing, which no step is taken with."""
        return torch.optim.SGD([torch.zeros(1)], lr=0.0)

    def distribute(self) -> None:
        """Leave the network as it is."""
