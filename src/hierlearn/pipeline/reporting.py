"""Reporting: the callbacks of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.training.settings import Settings
    from hierlearn.training.solvers.timeline import Timeline


@dataclass(frozen=True)
class Beginning:
    """What is known of a training before its first step.

    Attributes:
        label_space: what will be predicted.
        settings: how it trains.
        summary: one sentence on it.
    """

    label_space: LabelSpace
    settings: Settings
    summary: str


@dataclass(frozen=True)
class Reporting:
    """The callbacks of a training.

    Attributes:
        on_message: called with one sentence on what was chosen.
        on_prepared: called in the process that writes with what will be trained, before the first
            step.
        on_epoch: called with the record of every epoch.
        on_step: called with the number of the step, from 1, and the number of steps.
        timeline: told which part of an epoch begins.
        tensorboard: also log for TensorBoard.
        bar: show a progress bar on a terminal.
    """

    on_message: Callable[[str], None] | None = None
    on_prepared: Callable[[Beginning], None] | None = None
    on_epoch: Callable[[dict[str, Any]], None] | None = None
    on_step: Callable[[int, int], None] | None = None
    timeline: Timeline | None = None
    tensorboard: bool = False
    bar: bool = True

    def message(self, sentence: str) -> None:
        """Pass a sentence to ``on_message``."""
        if self.on_message is not None:
            self.on_message(sentence)
