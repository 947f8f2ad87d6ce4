"""Timeline: to which part of an epoch the time goes, as ``hierlearn bench`` reports it.

A trainer enters one part after the other, so that every moment belongs to one of them and the parts
sum to the epoch. The backward pass begins in the loss and ends in the network: it passes from one
to the other where the gradient of the network's output is known. Autograd runs what was recorded
last first, so all of the loss comes before the first gradient of an output.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hierlearn.links import HeadOutput
from hierlearn.training.solvers.solver import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTS = {
    "input": "order of the rows, inputs and targets",
    "network": "forward and backward, random numbers",
    "loss": "forward and backward, with its link",
    "optimizer": "update of the weights, clipping, checks",
    "metrics": "validation: the network and the metric",
    "checkpoints": "checks of the weights, writing them",
    "other": "progress, the record of the epoch, the log",
}


class EnoughEpochs(Exception):  # noqa: N818  a signal, caught by whoever measures
    """All epochs that were asked for are measured."""


class EpochTimer(Timeline):
    """Measure the parts of some epochs.

    On a GPU every other block of epochs runs without being interrupted, as waiting for the GPU
    after each part has a price. The first block of either kind warms up.

    Args:
        device: where the training runs.
        blocks: how many blocks of epochs to measure.
        block: epochs per block: those between two validations.
        on_epoch: called with the number of epochs that are over.

    Attributes:
        measured: the seconds of every part, one dictionary per epoch.
        whole: the seconds of the epochs that were not interrupted.
    """

    def __init__(
        self,
        device: torch.device,
        blocks: int,
        block: int = 1,
        on_epoch: Callable[[int], None] | None = None,
    ) -> None:
        self.device, self.block = device, block
        self.alternates = device.type == "cuda"
        self.epochs = block * (1 + blocks) * (2 if self.alternates else 1)
        self.measured: list[dict[str, float]] = []
        self.whole: list[float] = []
        self._on_epoch = on_epoch
        self._count = 0
        self._part, self._since, self._begun = "input", 0.0, 0.0
        self._seconds = dict.fromkeys(PARTS, 0.0)

    @property
    def warmed_up(self) -> bool:
        """Whether there are measured epochs after those that warm up."""
        return len(self.measured) > self.block

    def begin_epoch(self) -> None:
        """Begin an epoch, in the part "input"."""
        self.measuring = not self.alternates or self._count // self.block % 2 == 0
        self._seconds, self._part = dict.fromkeys(PARTS, 0.0), "input"
        self._begun = self._since = self._now()

    def enter(self, part: str) -> None:
        """End the current part, and begin another one."""
        if self.measuring:
            self._close()
            self._part = part

    def watch(self, output: Any) -> None:
        """Notice where the backward pass of what a network returned leaves the loss."""
        if not self.measuring:
            return

        def leave_loss(_: Tensor) -> None:
            if self._part == "loss":  # the first of them; there may be several heads
                self.enter("network")

        for tensor in tensors_of(output):
            if tensor.requires_grad:
                tensor.register_hook(leave_loss)  # type: ignore[no-untyped-call]

    def end_epoch(self) -> None:
        """End an epoch; raise EnoughEpochs after the last one."""
        if self.measuring:
            self._close()
            self.measured.append(self._seconds)
        else:
            self.whole.append(self._now() - self._begun)
        self._count += 1
        if self._on_epoch is not None:
            self._on_epoch(self._count)
        if self._count == self.epochs:
            raise EnoughEpochs

    def means(self) -> dict[str, float]:
        """Return the mean seconds of every part over the epochs after those that warm up."""
        kept = self.measured[self.block :] or self.measured
        return {part: sum(one[part] for one in kept) / len(kept) for part in PARTS}

    def uninterrupted(self) -> float | None:
        """Return the mean seconds of an epoch that was not interrupted; None without one."""
        kept = self.whole[self.block :] or self.whole
        return sum(kept) / len(kept) if kept else None

    def _close(self) -> None:
        now = self._now()
        self._seconds[self._part] += now - self._since
        self._since = now

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def tensors_of(output: Any) -> Iterator[Tensor]:
    """Yield the tensors that what a network returned is made of."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, HeadOutput):
        yield from output.tensors
    elif isinstance(output, dict):
        for one in output.values():
            yield from tensors_of(one)
