"""Profile: where time goes in an epoch of a training, measured in the trainer itself."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.pipeline.reporting import Reporting
from hierlearn.pipeline.train import run
from hierlearn.training.prepare import summary
from hierlearn.training.solvers.timeline import EnoughEpochs, EpochTimer

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn.training.prepare import Prepared
    from hierlearn.training.processes import Processes


@dataclass(frozen=True)
class Profile:
    """Where time goes in an epoch.

    Attributes:
        summary: what is trained.
        seconds: the mean of every part; see ``training.timeline.PARTS``.
        measured: over how many epochs.
        warmed_up: whether epochs came before these.
        without_waiting: the mean seconds of an epoch in which nobody waits for the GPU after each
            part; None on a CPU, where nobody waits.
        epochs: of the whole training, at most.
        steps: per epoch.
        batch_size: rows per step.
    """

    summary: str
    seconds: dict[str, float]
    measured: int
    warmed_up: bool
    without_waiting: float | None
    epochs: int
    steps: int
    batch_size: int

    @property
    def total(self) -> float:
        """The seconds of all parts."""
        return sum(self.seconds.values())

    @property
    def fractions(self) -> dict[str, float]:
        """The share of every part in the epoch."""
        total = self.total
        return {part: seconds / total for part, seconds in self.seconds.items()}

    @property
    def whole(self) -> float:
        """The seconds of the epochs of a whole training that does not stop early."""
        return self.epochs * (self.total if self.without_waiting is None else self.without_waiting)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {**asdict(self), "total": self.total, "fractions": self.fractions}


def profile(
    prepared: Prepared,
    here: Processes,
    epochs: int = 3,
    on_epoch: Callable[[int], None] | None = None,
) -> Profile:
    """Train some epochs as ``train`` does, and measure their parts; no model is kept.

    Args:
        prepared: what is trained.
        here: this process, the only one.
        epochs: how many to measure after those that warm up, or as many validations, where these
            are several epochs apart.
        on_epoch: called with the number of epochs that are over.
    """
    if here.world > 1:
        raise HierlearnError(
            f"a profile is of one process, not of {here.world}; start it without torchrun"
        )
    settings = prepared.decision.settings
    timer = EpochTimer(here.device, epochs, settings.validate_every, on_epoch)
    sentence = summary(prepared)
    reporting = Reporting(bar=False, timeline=timer)
    # The folder is for checkpoints and the log, which cost time.
    with tempfile.TemporaryDirectory() as folder, suppress(EnoughEpochs):
        run(prepared, here, Path(folder), reporting=reporting)
    one_step = settings.optimizer != "adamw"
    rows = len(prepared.rows)
    return Profile(
        summary=sentence,
        seconds=timer.means(),
        measured=len(timer.measured) - timer.warmed_up * timer.block,
        warmed_up=timer.warmed_up,
        without_waiting=timer.uninterrupted(),
        epochs=1 if one_step else settings.epochs,
        steps=1 if one_step else -(-rows // settings.batch_size),
        batch_size=rows if one_step else min(rows, settings.batch_size),
    )
