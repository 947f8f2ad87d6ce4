"""Best: the best weights of each model so far, by a metric, and which models have stopped.

Stacked models are judged each by itself: one stops while the others go on, and keeps its best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.metrics import METRICS
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor, nn

FACTS = ("value", "epoch", "peak", "stopped", "improved_last")


class Best:
    """What early stopping remembers.

    Args:
        network: holds the models.
        members: how many there are.
        metric: a name of METRICS.
        patience: epochs without a better metric after which a model stops; None: never, and
            nothing is remembered.

    Attributes:
        value: the metric of the best weights of each model; None before there are any.
        epoch: their epoch, from 1; 0 before there are any.
        peak: the best metric of each model so far, with patience or without.
        stopped: which models have stopped.
        improved_last: which models were at their peak when they were judged last.
        weights: the best weights by name; those of stacked models as they are stacked.
    """

    def __init__(self, network: nn.Module, members: int, metric: str, patience: int | None) -> None:
        self.network = network
        self.stacked = isinstance(network, Network) and network.members is not None
        self.sign = 1 if METRICS[metric].direction == "up" else -1
        self.patience = patience
        self.value: list[float | None] = [None] * members
        self.epoch = [0] * members
        self.peak: list[float | None] = [None] * members
        self.stopped = [False] * members
        self.improved_last = [False] * members
        self.weights: dict[str, Tensor] = {}

    def judge(self, values: Sequence[float], epoch: int) -> None:
        """Look at the metric of each model after an epoch; remember what is best, stop who stalls.

        Args:
            values: a figure a model; NaN is never better.
            epoch: the number of the epoch, from 1.
        """
        for member, value in enumerate(values):
            if not self.stopped[member]:
                self._judge_one(member, value, epoch)

    def _judge_one(self, member: int, value: float, epoch: int) -> None:
        peak = self.peak[member]
        better = value == value and (peak is None or self.sign * (value - peak) > 0)
        self.improved_last[member] = better
        if better:
            self.peak[member] = value
        if self.patience is None:
            return
        if better:
            self.value[member], self.epoch[member] = value, epoch
            self._remember(member)
        elif epoch - self.epoch[member] >= self.patience:
            self.stopped[member] = True
            if not self.epoch[member]:  # it keeps the weights with which it stopped
                self._remember(member)

    def of_running(self, values: Sequence[float]) -> list[float | None]:
        """Return the figures of the models that have not stopped, None for the others."""
        pairs = zip(values, self.stopped, strict=True)
        return [None if stopped else value for value, stopped in pairs]

    def _remember(self, member: int) -> None:
        """Copy the weights of one model to the best ones."""
        if not self.weights:
            state = self.network.state_dict()
            self.weights = {name: value.clone() for name, value in state.items()}
        for best, value in zip(self._best_of(member), self.state_of(member), strict=True):
            best.copy_(value)

    def restore(self) -> None:
        """Give the models their best weights; one without any keeps those that it has."""
        for member, stopped in enumerate(self.stopped):
            if stopped or self.epoch[member]:
                for value, best in zip(self.state_of(member), self._best_of(member), strict=True):
                    value.copy_(best)

    def state_of(self, member: int) -> list[Tensor]:
        """Return the tensors of one model, to be read or written in place."""
        state = self.network.state_dict().values()
        return [value[member] if self.stacked else value for value in state]

    def _best_of(self, member: int) -> list[Tensor]:
        best = [self.weights[name] for name in self.network.state_dict()]
        return [value[member] if self.stacked else value for value in best]

    def facts(self) -> dict[str, Any]:
        """Return all but the weights, ready for JSON."""
        return {name: getattr(self, name) for name in FACTS}

    def take_up(
        self, facts: Mapping[str, Any], weights: Mapping[str, Tensor], device: torch.device
    ) -> None:
        """Go on from what ``facts`` and ``weights`` told."""
        for name in FACTS:
            setattr(self, name, facts[name])
        self.weights = {name: value.to(device) for name, value in weights.items()}
