"""Standardize: the preprocessing of numbers as a torch module, for exported graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Standardize(nn.Module):
    """Fill in missing numbers and standardize in double precision, as NumericPreprocessor does.

    Args:
        mean: (D,) what a missing number becomes.
        scale: (D,) the standard deviations.
        observed: (D,) whether any training value was there; other columns become 0.
        scaled: whether to center and scale; otherwise missing numbers are only filled in.
    """

    mean: Tensor
    scale: Tensor
    observed: Tensor

    def __init__(
        self, mean: NDArray[Any], scale: NDArray[Any], observed: NDArray[Any], *, scaled: bool
    ) -> None:
        super().__init__()
        self.scaled = scaled
        for name, array in (("mean", mean), ("scale", scale), ("observed", observed)):
            self.register_buffer(name, torch.from_numpy(array.copy()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (N, D) float32 rows with nothing missing."""
        x = inputs.double()
        x = torch.where(x.isnan(), self.mean, x)
        if self.scaled:
            x = (x - self.mean) / self.scale
        return torch.where(self.observed, x, 0.0).float()

    def examples(self, noise: Tensor) -> Tensor:
        """Return raw rows that spread like the training rows, from (N, D) standard normal noise."""
        return (noise * self.scale + self.mean).float()
