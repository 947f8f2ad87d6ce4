"""Layers that hold one network, or M of them stacked.

    one network   x (N, D)                 -> (N, K)
    M members     x (N, D) or (M, N, D)    -> (M, N, K)

Members share nothing: their weights are stacked along a first dimension, so that one batched matmul
computes all of them. Each draws its dropout from a random generator of its own, so a member is
the same network as the one trained alone with its seed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Dense(nn.Module):
    """A linear layer, or M of them stacked: x W + b with W (D, K) or (M, D, K).

    Args:
        inputs: D.
        outputs: K.
        bound: weights and bias are drawn uniformly from (-bound, bound); by default 1 / sqrt(D),
            as torch's linear layer does.
        bias: whether b is learned; otherwise it is 0.
    """

    bias: Tensor

    def __init__(
        self, inputs: int, outputs: int, bound: float | None = None, *, bias: bool = True
    ) -> None:
        super().__init__()
        if inputs < 1 or outputs < 1:
            raise HierlearnError(f"a layer {inputs} x {outputs} has no inputs or no outputs")
        self.bound = 1 / math.sqrt(inputs) if bound is None else bound
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-self.bound, self.bound))
        if bias:
            self.bias = nn.Parameter(torch.empty(outputs).uniform_(-self.bound, self.bound))
        else:
            self.register_buffer("bias", torch.zeros(outputs), persistent=False)

    @classmethod
    def stack(cls, layers: Sequence[Dense]) -> Dense:
        """Return one layer that holds the weights of several."""
        new = cls.__new__(cls)
        nn.Module.__init__(new)
        new.bound = layers[0].bound
        new.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        bias = torch.stack([layer.bias.detach() for layer in layers])
        if isinstance(layers[0].bias, nn.Parameter):
            new.bias = nn.Parameter(bias)
        else:
            new.register_buffer("bias", bias, persistent=False)
        return new

    def forward(self, x: Tensor) -> Tensor:
        """Return x W + b."""
        if self.weight.dim() == 2:
            return torch.addmm(self.bias, x, self.weight)
        if x.dim() == 2:
            x = x.expand(len(self.weight), *x.shape)
        return torch.baddbmm(self.bias[:, None], x, self.weight)

    def extra_repr(self) -> str:
        """Show the shape when the module is printed."""
        return " x ".join(map(str, self.weight.shape))


class Dropout(nn.Module):
    """Dropout that draws each member's noise from a generator of its own.

    A draw of 64 bits decides four entries, so the rate is rounded to a multiple of 1 / 65,536.
    On the CPU that is several times faster than drawing every entry.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise HierlearnError(f"dropout must lie in [0, 1), not {p}")
        self.p = p
        self.generators: Sequence[torch.Generator] | None = None

    @classmethod
    def stack(cls, layers: Sequence[Dropout]) -> Dropout:
        """Return a layer for all members."""
        return cls(layers[0].p)

    def forward(self, x: Tensor) -> Tensor:
        """Return x with a fraction of its entries 0 and the others scaled up."""
        if not self.training or self.p == 0:
            return x
        if self.generators is None:
            return nn.functional.dropout(x, self.p)
        members = len(x) if x.dim() == 3 else 1
        size = x.numel() // members
        bits = torch.empty(members, -(-size // 4), dtype=torch.int64, device=x.device)
        for row, generator in zip(bits, self.generators, strict=True):
            row.random_(-(2**63), None, generator=generator)
        count = max(1, round((1 - self.p) * 65_536))  # of the values that 16 bits take
        kept = bits.view(torch.int16)[:, :size].le(count - 32_769).reshape(x.shape)
        return x * kept.to(x.dtype).mul_(65_536 / count)

    def extra_repr(self) -> str:
        """Show the rate when the module is printed."""
        return str(self.p)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "generators": None}  # generators do not pickle


def check_size(**sizes: int) -> None:
    """Raise on layers without units and networks without layers."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise HierlearnError(f"{name} must be an integer of at least 1, not {value!r}")
