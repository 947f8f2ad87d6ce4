"""Epoch: what the steps of one epoch tell, gathered on the device: losses and selected classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.losses import HCLLoss

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor, nn


def curricula(loss: nn.Module) -> list[HCLLoss]:
    """Return the curriculum losses in a loss: itself, or those among its parts."""
    return [part for part in loss.modules() if isinstance(part, HCLLoss)]


class Epoch:
    """The losses and the selections of the steps of an epoch so far.

    Args:
        members: how many models are trained.
    """

    def __init__(self, members: int) -> None:
        self.losses: list[Tensor] = []  # (M,) a step
        self.selected: list[Tensor | None] = [None] * members  # (C,) how often, a model

    def add(self, total: Tensor, shown: Iterable[HCLLoss | None], stopped: Sequence[bool]) -> None:
        """Add a step: the loss of each model, and what its curriculum, if any, has selected."""
        self.losses.append(total)
        for number, curriculum in enumerate(shown):
            if curriculum is None or curriculum.selected_now is None or stopped[number]:
                continue
            chosen = curriculum.selected_now.to(torch.float32)
            before = self.selected[number]
            self.selected[number] = chosen if before is None else before + chosen

    def mean_loss(self) -> Tensor:
        """Return (M,) float64 the mean loss of each model over the steps."""
        return torch.stack(self.losses).double().mean(dim=0)

    def selected_by_level(self, level_sizes: Sequence[int]) -> list[float] | None:
        """Return the share of each level's classes that were selected, over steps and models."""
        chosen = [one for one in self.selected if one is not None]
        if not chosen:
            return None
        shares = torch.stack(chosen).mean(dim=0) / len(self.losses)
        levels = torch.split(shares, list(level_sizes))
        return [round(float(level.mean()), 6) for level in levels]

    def first_wrong(self) -> int | None:
        """Return the first step whose loss is not finite, counted from 0; None where all are."""
        if not self.losses:
            return None
        wrong = (~torch.stack(self.losses).isfinite()).any(dim=1).nonzero()
        return int(wrong[0]) if len(wrong) else None

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint in the midst of the epoch must keep."""
        chosen = {str(k): one for k, one in enumerate(self.selected) if one is not None}
        return {"losses": torch.stack(self.losses), **chosen} if self.losses else {}

    def take_up(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Go on from what ``tensors`` returned."""
        for name, value in tensors.items():
            if name == "losses":
                self.losses = list(value.to(device))
            else:
                self.selected[int(name)] = value.to(device)
