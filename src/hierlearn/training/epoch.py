"""RunningEpoch: the losses and selected classes of the steps of one epoch, kept on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.training.checkpoint import check_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.training.processes import Processes


class RunningEpoch:
    """The losses and the selections of the steps of an epoch so far."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []  # (M,) per step
        self.selected: Tensor | None = None  # (R, C) how often, of the members that still learn

    def add(self, losses: Tensor, selection: Tensor | None) -> None:
        """Add a step.

        Args:
            losses: (M,) of all members.
            selection: (R, C) bool, what a curriculum has selected for the running members.
        """
        self.losses.append(losses)
        if selection is not None:
            now = selection.to(torch.float32)
            self.selected = now if self.selected is None else self.selected.add_(now)

    def average(self, processes: Processes) -> None:
        """Average the losses over all processes, whose parts of a batch have other ones."""
        if processes.world > 1 and self.losses:
            found = torch.stack(self.losses)
            self.losses = list((processes.total(found) / processes.world).to(found.dtype))

    def mean_loss(self) -> Tensor:
        """Return (M,) float64 the mean loss of each member over the steps."""
        return torch.stack(self.losses).double().mean(dim=0)

    def selected_fraction(self) -> Tensor | None:
        """Return (C,) the fraction of steps and members in which each class was selected."""
        if self.selected is None:
            return None
        return self.selected.mean(dim=0).cpu() / len(self.losses)

    def first_non_finite(self) -> int | None:
        """Return the first step whose loss is not finite, counted from 0; None where all are."""
        if not self.losses:
            return None
        wrong = (~torch.stack(self.losses).isfinite()).any(dim=1).nonzero()
        return int(wrong[0]) if len(wrong) else None

    def state_dict(self) -> dict[str, Tensor]:
        """Return what a checkpoint in the middle of the epoch must keep."""
        if not self.losses:
            return {}
        found = {"losses": torch.stack(self.losses)}
        return found if self.selected is None else {**found, "selected": self.selected}

    def load_state_dict(
        self, state: Mapping[str, Tensor], device: torch.device, stopped: list[bool], classes: int
    ) -> None:
        """Restore what ``state_dict`` returned.

        Args:
            state: the tensors.
            device: where they go.
            stopped: which members have stopped.
            classes: of the taxonomy.
        """
        steps = len(state["losses"]) if "losses" in state and state["losses"].dim() else 0
        expected = {"losses": (steps, len(stopped)), "selected": (stopped.count(False), classes)}
        check_shapes("epoch/", state, {name: expected[name] for name in expected if name in state})
        if "losses" in state:
            self.losses = list(state["losses"].to(device))
        if "selected" in state:
            self.selected = state["selected"].to(device)


def means_by_level(values: Tensor, label_space: LabelSpace) -> list[float]:
    """Return the means of the (C,) values of the classes of each level, ready for JSON."""
    levels = torch.split(values, list(label_space.hierarchy.level_sizes))
    return [round(float(level.mean()), 6) for level in levels]


def running_selection(selection: Tensor | None, stopped: list[bool] | None) -> Tensor | None:
    """Return (R, C) the classes selected for the members that have not stopped.

    Args:
        selection: (C,), or (M, C) for the members of an ensemble; None without a curriculum.
        stopped: which members have stopped; None for a single network.
    """
    if selection is None:
        return None
    if stopped is None:
        return selection[None]
    if selection.dim() == 1:  # the same for all members
        selection = selection.expand(len(stopped), -1)
    if not any(stopped):
        return selection
    return selection[[member for member, over in enumerate(stopped) if not over]]
