"""EarlyStopping: the best weights of each member so far, by a metric, and which have stopped.

Each member of an ensemble is evaluated on its own: one may stop while the others train on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.metrics import METRICS
from hierlearn.metrics.measure import compute
from hierlearn.networks.ensemble import member_state
from hierlearn.training.checkpoint import check_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.training.rows import Rows

STATE = ("value", "epoch", "peak", "stopped", "improved_last")


class EarlyStopping:
    """The best metric and weights of each member.

    Args:
        network: holds the members.
        members: how many there are.
        metric: a name of METRICS.
        patience: epochs without improvement after which a member stops; None: never, and no
            weights are stored.

    Attributes:
        value: the metric of the best weights of each member; None before there are any.
        epoch: their epoch, from 1; 0 before there are any.
        peak: the best metric of each member so far, with patience or without.
        stopped: which members have stopped.
        improved_last: which members were at their peak when last evaluated.
        weights: the best weights of each member by name.
        begin: the epochs before the first one that competes.
    """

    def __init__(self, network: nn.Module, members: int, metric: str, patience: int | None) -> None:
        self.network = network
        self.sign = 1 if METRICS[metric].direction == "up" else -1
        self.patience = patience
        self.value: list[float | None] = [None] * members
        self.epoch = [0] * members
        self.peak: list[float | None] = [None] * members
        self.stopped = [False] * members
        self.improved_last = [False] * members
        self.weights: dict[int, dict[str, Tensor]] = {}
        self.begin = 0

    def update(self, values: Sequence[float], epoch: int) -> None:
        """Update each member after an epoch: store the best weights, stop without improvement.

        Args:
            values: the metric of each member; NaN never counts as an improvement.
            epoch: the number of the epoch, from 1.
        """
        for member, value in enumerate(values):
            if not self.stopped[member]:
                self._update_one(member, value, epoch)

    def _update_one(self, member: int, value: float, epoch: int) -> None:
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
        elif epoch - max(self.epoch[member], self.begin) >= self.patience:
            self.stopped[member] = True
            if not self.epoch[member]:  # it keeps the weights with which it stopped
                self._remember(member)

    def of_running(self, values: Sequence[float]) -> list[float | None]:
        """Return the values of the members that have not stopped, None for the others."""
        pairs = zip(values, self.stopped, strict=True)
        return [None if stopped else value for value, stopped in pairs]

    def _remember(self, member: int) -> None:
        """Copy the weights of one member to the best ones."""
        self.weights[member] = {
            name: value.clone() for name, value in self.state_of(member).items()
        }

    def restore(self) -> None:
        """Load the best weights of each member; a member without any keeps its own."""
        for member, best in self.weights.items():
            for name, value in self.state_of(member).items():
                value.copy_(best[name])

    def state_of(self, member: int) -> dict[str, Tensor]:
        """Return the tensors of one member by name, to be read or written in place."""
        return member_state(self.network, member)

    def state_dict(self) -> dict[str, Any]:
        """Return all but the weights, ready for JSON."""
        return {name: getattr(self, name) for name in STATE}

    def tensors(self) -> dict[str, Tensor]:
        """Return the best weights by member and name."""
        return {
            f"{member}/{name}": value
            for member, best in self.weights.items()
            for name, value in best.items()
        }

    def load_state_dict(
        self, state: Mapping[str, Any], tensors: Mapping[str, Tensor], device: torch.device
    ) -> None:
        """Restore what ``state_dict`` and ``tensors`` returned."""
        for name in STATE:
            setattr(self, name, state[name])
        self.weights = {}
        for key, value in tensors.items():
            member, _, name = key.partition("/")
            self.weights.setdefault(int(member), {})[name] = value.to(device)
        for number, weights in self.weights.items():
            own = {name: tuple(value.shape) for name, value in self.state_of(number).items()}
            check_shapes(f"best/{number}/", weights, own)


def measure_members(
    name: str, found: Sequence[Tensor], rows: Rows, stopped: Sequence[bool], space: LabelSpace
) -> Tensor:
    """Return (M + 1,) the metric of each member, 0 where it has stopped.

    The last value is 1 + the first member whose probabilities are not finite, or 0.

    Args:
        name: of METRICS.
        found: (N, C) probabilities of each member.
        rows: the validation rows.
        stopped: which members have stopped.
        space: what can be predicted.
    """
    values = torch.zeros(len(found) + 1, dtype=torch.float64, device=rows.device)
    every = torch.arange(len(rows), device=rows.device)
    targets, mask = rows.targets(every), rows.mask(every)
    finite = torch.stack([p.isfinite().all() for p in found]).tolist()
    for member, p in enumerate(found):
        if stopped[member]:
            continue
        if finite[member]:
            values[member] = compute(name, p, targets, space, mask).to(values.device)
        else:
            values[-1] = values[-1] or member + 1
    return values
