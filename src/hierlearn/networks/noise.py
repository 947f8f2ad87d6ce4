"""Noise from counters: draws that depend on the seed of a step and their own number alone.

    draw i of a step = mixed(seed + (call << 40) + i)

Where seeds are a tensor on a GPU, all members draw in one launch and a captured step draws again
as its seeds change. A draw of 64 bits decides four entries.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hierlearn.kernels import noise as kernels

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
