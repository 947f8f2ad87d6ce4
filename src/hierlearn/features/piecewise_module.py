"""PiecewiseLinear: the piecewise-linear encoding as a torch module, for exported graphs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.features.piecewise import Bins


class PiecewiseLinear(nn.Module):
    """Encode and standardize in double precision, as PiecewiseLinearPreprocessor does.

    Args:
        bins: of all columns.
        mean: (W,) of the encoded numbers.
        scale: (W,) their standard deviations.
    """

    source: Tensor
    place: Tensor
    low: Tensor
    width: Tensor
    floor: Tensor
    ceiling: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, bins: Bins, mean: NDArray[Any], scale: NDArray[Any]) -> None:
        super().__init__()
        for name, array in {**asdict(bins), "mean": mean, "scale": scale}.items():
            self.register_buffer(name, torch.from_numpy(array.copy()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (N, W) float32 rows with nothing missing."""
        x = inputs.double().index_select(1, self.source)
        missing = x.isnan()  # found first: graphs differ in what the maximum of NaN is
        x = (torch.where(missing, self.low, x) - self.low) / self.width
        x = torch.minimum(torch.maximum(x, self.floor), self.ceiling)
        return torch.where(missing, 0.0, (x - self.mean) / self.scale).float()

    def examples(self, noise: Tensor) -> Tensor:
        """Return raw rows spread over the bins and beyond, from (N, D) standard normal noise."""
        count = torch.bincount(self.source, minlength=noise.shape[1])  # (D,) bins
        place = (count * (0.5 + noise.double() / 3)).index_select(1, self.source) - self.place
        within = torch.minimum(torch.maximum(place, self.floor), self.ceiling)
        begin = torch.where(self.place == 0, self.low, 0.0)
        found = torch.zeros_like(noise, dtype=torch.float64)
        return found.index_add(1, self.source, within * self.width + begin).float()
