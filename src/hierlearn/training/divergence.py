"""Divergence: what to say of a training whose loss, weights or probabilities are not finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_ROWS = 8  # that a message names


class NonFiniteLossError(HierlearnError):
    """The loss, the weights or the probabilities of a network became infinite or NaN."""


@dataclass(frozen=True)
class Moment:
    """When a training diverged.

    Attributes:
        epoch: from 1.
        batch: from 1, with the batches of an epoch: "3 of 12".
        loss: the name of the loss.
        learning_rate: of the step.
        seed: of the member.
        saved: the step of the last checkpoint before; None where there is none.
    """

    epoch: int
    batch: str
    loss: str
    learning_rate: float
    seed: int
    saved: int | None

    @property
    def checkpoint(self) -> str:
        """Where to go on from."""
        if self.saved is None:
            return "there is no checkpoint from before"
        return f"the last good checkpoint is that of step {self.saved}"


def diverged(what: str, value: float, moment: Moment, rows: Sequence[int]) -> NonFiniteLossError:
    """Return the error of a training that has diverged.

    Args:
        what: is not finite: "loss", "weights" or "probabilities".
        value: infinity or NaN.
        moment: when.
        rows: the training rows of the batch.
    """
    shown = ", ".join(map(str, rows[:MOST_ROWS])) + (", ..." if len(rows) > MOST_ROWS else "")
    return NonFiniteLossError(
        f"the {what} became {value} in epoch {moment.epoch}, batch {moment.batch}, with "
        f"{moment.loss} at learning rate {moment.learning_rate:.3g} (seed {moment.seed}, training "
        f"rows {shown}); lower the learning rate or set max_grad_norm, and check those rows; "
        f"{moment.checkpoint}"
    )
