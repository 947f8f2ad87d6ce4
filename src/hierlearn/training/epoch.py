"""Epoch: what the steps of one epoch tell, gathered on the device: losses and selected classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.losses import HCLLoss

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor, nn


def curricula(loss: nn.Module) -> list[HCLLoss]:
    """Return the curriculum losses in a loss: itself, or those among its parts."""
    return [part for part in loss.modules() if isinstance(part, HCLLoss)]


class Epoch:
    """The losses and the selections of the steps of an epoch so far."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []  # (M,) a step
        self.selected: Tensor | None = None  # (R, C) how often, of the models that still learn

    def add(self, total: Tensor, shown: Iterable[HCLLoss]) -> None:
        """Add a step: the losses of all models, and what the curricula of some have selected."""
        self.losses.append(total)
        chosen = [one.selected_now for one in shown if one.selected_now is not None]
        if chosen:
            now = torch.stack(chosen).to(torch.float32)
            self.selected = now if self.selected is None else self.selected.add_(now)

    def mean_loss(self) -> Tensor:
        """Return (M,) float64 the mean loss of each model over the steps."""
        return torch.stack(self.losses).double().mean(dim=0)

    def selected_share(self) -> Tensor | None:
        """Return (C,) the share of steps and models in which each class was selected."""
        if self.selected is None:
            return None
        return self.selected.mean(dim=0).cpu() / len(self.losses)

    def first_wrong(self) -> int | None:
        """Return the first step whose loss is not finite, counted from 0; None where all are."""
        if not self.losses:
            return None
        wrong = (~torch.stack(self.losses).isfinite()).any(dim=1).nonzero()
        return int(wrong[0]) if len(wrong) else None

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint in the midst of the epoch must keep."""
        if not self.losses:
            return {}
        found = {"losses": torch.stack(self.losses)}
        return found if self.selected is None else {**found, "selected": self.selected}

    def take_up(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Go on from what ``tensors`` returned."""
        if "losses" in tensors:
            self.losses = list(tensors["losses"].to(device))
        if "selected" in tensors:
            self.selected = tensors["selected"].to(device)
