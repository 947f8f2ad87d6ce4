"""Scale: what distances are divided by, fixed or learned as exp(log_scale)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Scale(nn.Module):
    """A positive number, or one per member.

    Args:
        value: the scale, or where learning begins.
        learned: whether it is a parameter.
    """

    log_scale: nn.Parameter | None

    def __init__(self, value: float, *, learned: bool = False) -> None:
        super().__init__()
        if not (value > 0 and math.isfinite(value)):
            raise HierlearnError(f"scale must be a number above 0, not {value}")
        self.value = float(value)
        self.log_scale = nn.Parameter(torch.tensor(math.log(value))) if learned else None

    @classmethod
    def stack(cls, scales: Sequence[Scale]) -> Scale:
        """Return the scales of all members."""
        new = cls(scales[0].value)
        learned = [one.log_scale.detach() for one in scales if one.log_scale is not None]
        if learned:
            new.log_scale = nn.Parameter(torch.stack(learned))
        return new

    def forward(self) -> Tensor | float:
        """Return the scale; (M, 1, 1) for the members of an ensemble."""
        if self.log_scale is None:
            return self.value
        found = self.log_scale.exp()
        return found[:, None, None] if found.dim() else found

    def extra_repr(self) -> str:
        """Show the value when the module is printed."""
        return f"{self.value:g}" + ", learned" * (self.log_scale is not None)
