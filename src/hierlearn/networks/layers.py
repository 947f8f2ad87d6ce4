"""Layers that hold one network, or M of them stacked.

    one network   x (N, D)                 -> (N, K)
    M members     x (N, D) or (M, N, D)    -> (M, N, K)

Members share nothing: their weights are stacked along a first dimension, so that one batched matmul
computes all of them. Each draws its dropout from a random generator of its own, so a member is
the same network as the one trained alone with its seed.

Noise from counters: draws that depend on the seed of a step and their own number alone.

    draw i of a step = mixed(seed + (call << 40) + i)

Where seeds are a tensor on a GPU, all members draw in one launch and a captured step draws again
as its seeds change. A draw of 64 bits decides four entries.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.kernels import noise as kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

DEEPEST = 1_000  # hidden layers of a network


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
        weights = f"a layer of {inputs:,} x {outputs:,} weights takes"
        check_memory(weights, 4 * inputs * outputs, "make it narrower")
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


@dataclass(frozen=True)
class Share:
    """The rows of a step that one of several processes computes.

    Every process draws the noise of all rows and uses that of its own, so that together they train
    as one process does.

    Attributes:
        rows: (n,) their places among all rows of the step.
        total: how many rows the step has.
    """

    rows: Tensor
    total: int


class Dropout(nn.Module):
    """Dropout that draws each member's noise from a generator, or from a seed, of its own.

    A draw of 64 bits decides four entries, so the rate is rounded to a multiple of 1 / 65,536.
    On the CPU that is several times faster than drawing every entry.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise HierlearnError(f"dropout must lie in [0, 1), not {p}")
        self.p = p
        self.kept = max(1, round((1 - p) * 65_536))  # of the values of 16 bits, to keep an entry
        self.generators: Sequence[torch.Generator] | None = None
        self.seeds: StepSeeds | None = None  # instead of the generators, on a GPU
        self.share: Share | None = None

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
        members, rows, width = len(x) if x.dim() == 3 else 1, x.shape[-2], x.shape[-1]
        own = slice(None) if self.share is None else self.share.rows  # of (M, total, D)
        size = (rows if self.share is None else self.share.total) * width
        if self.seeds is not None:
            scales = self.seeds.scales(size, self.kept).view(members, -1, width)[:, own]
            return x * scales.to(x.dtype).reshape(x.shape)
        bits = torch.empty(members, -(-size // 4), dtype=torch.int64, device=x.device)
        for row, generator in zip(bits, self.generators, strict=True):
            row.random_(-(2**63), None, generator=generator)
        drawn = bits.view(torch.int16)[:, :size].view(members, -1, width)[:, own]
        scales = drawn.le(self.kept - 32_769).to(x.dtype).mul_(65_536 / self.kept)
        return x * scales.reshape(x.shape)

    @property
    def needs_generators(self) -> bool:
        """Whether generators are drawn from even where there are seeds."""
        return type(self) is not Dropout

    def extra_repr(self) -> str:
        """Show the rate when the module is printed."""
        return str(self.p)

    def __getstate__(self) -> dict[str, object]:
        # Generators do not pickle.
        return {**self.__dict__, "generators": None, "seeds": None, "share": None}


class InputNoise(Dropout):
    """Inputs with noise while training: Gaussian noise is added, then a fraction is left out.

    What is kept is scaled up, so that the mean of every input stays. Where M members read the same
    rows, each gets them with noise of its own.

    Args:
        input_dropout: fraction of the inputs left out.
        input_noise: standard deviation of the Gaussian noise.
    """

    def __init__(self, input_dropout: float = 0.0, input_noise: float = 0.0) -> None:
        if not 0 <= input_dropout < 1:
            raise HierlearnError(f"input_dropout must lie in [0, 1), not {input_dropout}")
        if not 0 <= input_noise < math.inf:
            raise HierlearnError(f"input_noise must be a number of at least 0, not {input_noise}")
        super().__init__(input_dropout)
        self.std = input_noise
        self.members: int | None = None

    @classmethod
    def stack(cls, layers: Sequence[Dropout]) -> InputNoise:
        """Return a layer for all members."""
        first = layers[0]
        new = cls(first.p, first.std if isinstance(first, InputNoise) else 0.0)
        new.members = len(layers)
        return new

    @property
    def needs_generators(self) -> bool:
        """Whether there is noise that is no dropout."""
        return self.std > 0

    def forward(self, x: Tensor) -> Tensor:
        """Return x with noise, (M, N, D) or rows of M members where there are several."""
        if not self.training or (self.p == 0 and self.std == 0):
            return x
        if self.members is not None and x.dim() == 2:
            x = x.expand(self.members, *x.shape)
        if not self.std:
            return super().forward(x)
        if self.generators is None:
            noise = torch.empty_like(x, memory_format=torch.contiguous_format).normal_(std=self.std)
            return super().forward(x + noise)
        members = len(x) if x.dim() == 3 else 1
        total = x.shape[-2] if self.share is None else self.share.total
        noise = torch.empty(members, total, x.shape[-1], dtype=x.dtype, device=x.device)
        for one, generator in zip(noise, self.generators, strict=True):
            one.normal_(std=self.std, generator=generator)
        noise = noise if self.share is None else noise[:, self.share.rows]
        return super().forward(x + noise.reshape(x.shape))

    def extra_repr(self) -> str:
        """Show the settings when the module is printed."""
        return f"input_dropout={self.p}, input_noise={self.std}"


def check_layers(width: int, depth: int) -> None:
    """Raise on hidden layers that are too many, or larger than the memory, before one is made."""
    check_size(width=width, depth=depth)
    if depth > DEEPEST:
        raise HierlearnError(f"depth must be at most {DEEPEST:,} layers, not {depth:,}")
    check_memory(
        f"a network of {depth:,} layers of width {width:,} takes",
        4 * (depth - 1) * width**2,
        "make it smaller",
    )


def check_memory(what: str, size: int, remedy: str) -> None:
    """Raise on something of more bytes than this machine has memory.

    Args:
        what: what takes the memory: "a layer takes".
        size: the bytes.
        remedy: what to do about it.
    """
    memory = memory_size()
    if memory is not None and size > memory:
        raise HierlearnError(
            f"{what} {size / 1e9:,.0f} GB, but this machine has {memory / 1e9:,.0f} GB of "
            f"memory; {remedy}"
        )


def memory_size() -> int | None:
    """Return the bytes of memory of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def check_size(**sizes: int) -> None:
    """Raise on layers without units and networks without layers."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise HierlearnError(f"{name} must be an integer of at least 1, not {value!r}")


def check_flag(**flags: bool) -> None:
    """Raise on options, by name, that are neither true nor false."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise HierlearnError(f"{name} must be true or false, not {value!r}")


CALL = 1 << 40  # draws between two calls


class StepSeeds:
    """The seeds of the members in one step, and how often they were drawn from.

    Args:
        seeds: (M,) int64, changed in place from step to step.
    """

    def __init__(self, seeds: Tensor) -> None:
        self.seeds = seeds
        self.calls = 0

    def scales(self, size: int, kept: int) -> Tensor:
        """Return (M, size) float32: 0 for dropped entries, for others what keeps the mean.

        Args:
            size: the entries of a member.
            kept: how many of the 65,536 values of a draw keep an entry.
        """
        begin, self.calls = self.calls * CALL, self.calls + 1
        limit, scale = kept - 32_769, 65_536 / kept
        if kernels.can_use(self.seeds):
            found = kernels.dropout_scales(self.seeds, begin, size, limit, scale)
            if found is not None:
                return found
        counters = torch.arange(begin, begin - (-size // 4), device=self.seeds.device)
        bits = mixed(self.seeds[:, None] + counters).view(torch.int16)[:, :size]
        return bits.le(limit).to(torch.float32).mul_(scale)


def mixed(numbers: Tensor) -> Tensor:
    """Return int64 numbers, mixed in place so that neighbors look independent.

    The last steps of SplitMix64 (Steele, Lea and Flood, 2014).
    """
    numbers.mul_(-0x61C8864680B583EB)
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        numbers.bitwise_xor_((numbers >> shift) & ((1 << (64 - shift)) - 1)).mul_(factor)
    return numbers.bitwise_xor_((numbers >> 31) & ((1 << 33) - 1))
