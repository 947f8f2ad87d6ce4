"""The torch module of several preprocessing steps side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence


class SideBySide(nn.Module):
    """Modules that read the same rows; their columns follow each other.

    Args:
        parts: the modules.
    """

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the columns of all modules."""
        return torch.cat([part(inputs) for part in self.parts], dim=-1)

    def examples(self, noise: Tensor) -> Tensor:
        """Make raw rows out of noise as the first module does that can."""
        for part in self.parts:
            if hasattr(part, "examples"):
                found: Tensor = part.examples(noise)  # type: ignore[operator]
                return found
        return noise
