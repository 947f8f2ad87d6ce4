"""StagedNetwork: a network whose parts are trained one after another.

While a part is trained, the others are fixed: their parameters have no gradient, so that no
optimizer moves them, and they compute as when predicting, without dropout and with the running
moments of a batch normalization. training/stages.py decides which part is trained in which epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import nn

from hierlearn.networks.ensemble import networks_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self


class StagedNetwork(nn.Module, ABC):
    """Base of the networks that are trained part by part.

    Attributes:
        trained: the first part that is trained now, and the first one after it that is not; None
            for all parts at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trained: tuple[int, int] | None = None

    @property
    @abstractmethod
    def parts(self) -> Sequence[nn.Module]:
        """The parts in the order of their training; together they hold all parameters."""

    @property
    @abstractmethod
    def part_classes(self) -> Sequence[slice]:
        """The classes whose loss trains each part; those of several parts follow each other."""

    def set_stage(self, trained: range | None) -> None:
        """Train some parts and fix all others; None trains all of them."""
        self.trained = None if trained is None else (trained.start, trained.stop)
        for number, part in enumerate(self.parts):
            part.requires_grad_(self.is_trained(number))
        self.train(self.training)

    def is_trained(self, part: int) -> bool:
        """Whether a part is among those that are trained."""
        return self.trained is None or self.trained[0] <= part < self.trained[1]

    def is_ahead(self, part: int) -> bool:
        """Whether a part is trained later, so that nothing of this step depends on it."""
        return self.training and self.trained is not None and part >= self.trained[1]

    def train(self, mode: bool = True) -> Self:
        """Set the training mode of the parts that are trained."""
        super().train(mode)
        for number, part in enumerate(self.parts):
            if not self.is_trained(number):
                part.eval()
        return self


def staged_networks(network: nn.Module) -> list[StagedNetwork]:
    """Return what is trained part by part in a network or an ensemble; empty for other networks."""
    return [one for one in networks_in(network) if isinstance(one, StagedNetwork)]
