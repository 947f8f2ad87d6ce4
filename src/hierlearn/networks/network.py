"""Network: what our networks have in common. Layers that hold one model, or M of them stacked.

    one model     x (N, D)                 -> logits (N, C)
    M members     x (N, D) or (M, N, D)    -> logits (M, N, C)

Members share nothing: their weights are stacked along a first dimension, so that one batched matrix
product computes all of them. Each draws its weights and its dropout from a random generator of
its own, so a member is the same model as the one trained alone with its seed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.networks.sparse import SparseRows


class Network(nn.Module, ABC):
    """Base of the networks.

    Args:
        inputs: D, the number of features.
        outputs: C, the number of classes.
        members: how many models are stacked; None for a single one without that dimension.
        options: the subclass's own arguments, kept so that a saved network can be made again.
    """

    head: Dense

    def __init__(self, inputs: int, outputs: int, members: int | None, **options: Any) -> None:
        super().__init__()
        for name, value in (("inputs", inputs), ("outputs", outputs), ("members", members)):
            if value is not None and value < 1:
                raise HierlearnError(f"{name} must be at least 1, not {value}")
        self.inputs = inputs
        self.outputs = outputs
        self.members = members
        self.options: dict[str, Any] = {
            "inputs": inputs,
            "outputs": outputs,
            "members": members,
            **options,
        }

    @abstractmethod
    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return the logits."""

    def draw_weights(self, generators: Sequence[torch.Generator]) -> None:
        """Draw the weights of every member from a generator of its own (on the CPU)."""
        for layer in self.modules():
            if isinstance(layer, Dense):
                layer.draw(generators)

    def draw_noise_from(self, generators: Sequence[torch.Generator] | None) -> None:
        """Let dropout draw from a generator a member; None: from torch's own."""
        for layer in self.modules():
            if isinstance(layer, Dropout):
                layer.generators = generators

    @torch.no_grad()
    def set_bias(self, bias: Tensor) -> None:
        """Set the (C,) bias of the last layer, that of the class priors for example."""
        self.head.bias.copy_(bias.to(self.head.bias).expand_as(self.head.bias))


class Dense(nn.Module):
    """A linear layer, or M of them stacked: x W + b with W (D, K) or (M, D, K).

    Args:
        inputs: D.
        outputs: K.
        members: M; None for a single layer.
        bound: weights and bias are drawn uniformly from (-bound, bound); by default 1 / sqrt(D),
            as torch's linear layer does.
    """

    def __init__(
        self, inputs: int, outputs: int, members: int | None = None, bound: float | None = None
    ) -> None:
        super().__init__()
        self.bound = 1 / math.sqrt(inputs) if bound is None else bound
        lead = () if members is None else (members,)
        self.weight = nn.Parameter(torch.empty(*lead, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(*lead, outputs))
        self.draw([torch.default_generator] * (members or 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return x W + b."""
        if self.weight.dim() == 2:
            return torch.addmm(self.bias, x, self.weight)
        if x.dim() == 2:
            x = x.expand(len(self.weight), *x.shape)
        return torch.baddbmm(self.bias[:, None], x, self.weight)

    @torch.no_grad()
    def draw(self, generators: Sequence[torch.Generator]) -> None:
        """Draw the weights and the bias of each member from its generator."""
        stacked = self.weight.dim() == 3
        weights = self.weight if stacked else self.weight[None]
        biases = self.bias if stacked else self.bias[None]
        for weight, bias, generator in zip(weights, biases, generators, strict=True):
            for values in (weight, bias):
                drawn = torch.empty(values.shape, device="cpu")
                values.copy_(drawn.uniform_(-self.bound, self.bound, generator=generator))

    def extra_repr(self) -> str:
        """Show the shape when the module is printed."""
        return " x ".join(map(str, self.weight.shape))


class Dropout(nn.Module):
    """Dropout that draws each member's noise from a generator of its own.

    A draw of 64 bits decides four entries, so the share is rounded to a multiple of 1 / 65,536.
    On the CPU that is several times faster than drawing every entry.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        if not 0 <= share < 1:
            raise HierlearnError(f"dropout must lie in [0, 1), not {share}")
        self.share = share
        self.generators: Sequence[torch.Generator] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return x with a share of its entries 0 and the others scaled up."""
        if not self.training or self.share == 0:
            return x
        if self.generators is None:
            return nn.functional.dropout(x, self.share)
        members = len(x) if x.dim() == 3 else 1
        size = x.numel() // members
        bits = torch.empty(members, -(-size // 4), dtype=torch.int64, device=x.device)
        for row, generator in zip(bits, self.generators, strict=True):
            row.random_(-(2**63), None, generator=generator)
        count = max(1, round((1 - self.share) * 65_536))  # of the values that 16 bits take
        kept = bits.view(torch.int16)[:, :size].le(count - 32_769).reshape(x.shape)
        return x * kept.to(x.dtype).mul_(65_536 / count)

    def extra_repr(self) -> str:
        """Show the share when the module is printed."""
        return str(self.share)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "generators": None}  # generators do not pickle
