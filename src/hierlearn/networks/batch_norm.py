"""BatchNorm: batch normalization of one network, or of M of them stacked."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Sequence

MOMENTUM, EPSILON = 0.1, 1e-5  # torch's own


class BatchNorm(nn.Module):
    """Normalize every feature over the rows of a batch: (N, K), or (M, N, K) for members.

    As torch's ``BatchNorm1d``, but members are stacked, and a batch of one row, which has no
    variance, is normalized by the running moments. Processes that share a batch normalize their own
    rows each.

    Args:
        features: K.
    """

    stackable: ClassVar[bool] = True
    mean: Tensor
    variance: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))

    @classmethod
    def stack(cls, layers: Sequence[BatchNorm]) -> BatchNorm:
        """Return one layer for all members."""
        new = cls.__new__(cls)
        nn.Module.__init__(new)
        for name in ("weight", "bias"):
            values = torch.stack([getattr(layer, name).detach() for layer in layers])
            setattr(new, name, nn.Parameter(values))
        for name in ("mean", "variance"):
            new.register_buffer(name, torch.stack([getattr(layer, name) for layer in layers]))
        return new

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalized; by the running moments when predicting."""
        x, rows = x.to(self.mean.dtype), x.shape[-2]  # moments of autocast's bf16 are in float32
        if self.training and rows > 1:
            variance, mean = torch.var_mean(x, dim=-2, correction=0)
            with torch.no_grad():
                self.mean.lerp_(mean, MOMENTUM)
                self.variance.lerp_(variance * (rows / (rows - 1)), MOMENTUM)
        else:
            mean, variance = self.mean, self.variance
        scale = self.weight * (variance + EPSILON).rsqrt()
        return x * scale[..., None, :] + (self.bias - mean * scale)[..., None, :]
