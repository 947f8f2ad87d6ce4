"""Stages: which parts of a network are trained in which epoch.

The epochs are shared out evenly over the parts of a ``StagedNetwork``, in their order; where there
are fewer epochs than parts, several parts share one. The stage follows from the number of the epoch
alone, so that a training that resumes goes on in the same stage. In each of them

    the loss sees the classes of its parts alone, and
    the learning rate follows the schedule from its beginning to its end.

Before the last stage a network has parts that are not trained yet: only the epochs of the last one
are validated, and compete where patience chooses the best weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from hierlearn.errors import HierlearnError
from hierlearn.networks.ensemble import staged_networks

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.losses import Loss
    from hierlearn.losses.joint import JointLoss


class Stages:
    """The stages of a training.

    Args:
        network: a StagedNetwork or an ensemble of them.
        loss: what trains it.
        epochs: of the whole training.
        device: where masks are.

    Attributes:
        count: how many stages there are.
        last: the first epoch of the last stage, from 0.
    """

    def __init__(
        self, network: nn.Module, loss: Loss | JointLoss, epochs: int, device: torch.device
    ) -> None:
        self.networks = staged_networks(network)
        self.epochs, self.device = epochs, device
        self.parts = len(self.networks[0].parts)
        self.count = min(self.parts, epochs)
        self.last = self.begin(self.count - 1)
        self.now: int | None = None
        self.classes: Tensor | None = None  # (C,) bool, those of the stage
        if not loss.entries_independent:
            raise HierlearnError(
                f"a network that is trained part by part needs a loss of every class alone, such "
                f"as bce or focal, not {type(loss).__name__}"
            )

    def begin(self, stage: int) -> int:
        """Return the first epoch of a stage, or of what follows the last one."""
        return -(-stage * self.epochs // self.count)

    def of_epoch(self, number: int) -> int:
        """Return the stage of an epoch, both from 0."""
        return number * self.count // self.epochs

    def enter(self, number: int) -> bool:
        """Train the parts of an epoch; return whether these are others than before."""
        stage = self.of_epoch(number)
        if stage == self.now:
            return False
        parts = range(stage * self.parts // self.count, (stage + 1) * self.parts // self.count)
        for one in self.networks:
            one.set_stage(parts)
        own = self.networks[0].part_classes
        known = torch.zeros(own[-1].stop, dtype=torch.bool, device=self.device)
        known[own[parts[0]].start : own[parts[-1]].stop] = True
        self.now, self.classes = stage, known
        return True

    def leave(self) -> None:
        """Free all parts again, after the last stage."""
        for one in self.networks:
            one.set_stage(None)
        self.now = self.classes = None

    def mask(self, targets: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return which targets are known and of classes of the stage; None where all are.

        Args:
            targets: (N, C), or (M, N, C) of members.
            mask: which of them are known; None for all.
        """
        assert self.classes is not None
        return self.classes.expand(targets.shape) if mask is None else mask & self.classes

    def place(self, step: int, steps: int) -> tuple[int, int]:
        """Return the number of a step in its stage, and how many steps that has.

        Args:
            step: in the training, from 0.
            steps: of the whole training.
        """
        per_epoch = steps // self.epochs
        stage = self.of_epoch(step // per_epoch)
        begin, end = (self.begin(one) * per_epoch for one in (stage, stage + 1))
        return step - begin, end - begin
