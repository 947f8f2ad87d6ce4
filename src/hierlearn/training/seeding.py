"""Random numbers that depend on a seed, a purpose and a count alone, never on earlier draws.

So training resumes from any step without the state of a generator, and a member of an ensemble
draws the numbers that it would draw alone.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def derive(seed: int, purpose: str, count: int = 0) -> int:
    """Return the seed of one use of random numbers."""
    text = f"{seed}/{purpose}/{count}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1


def generator(seed: int, purpose: str, count: int = 0) -> torch.Generator:
    """Return a generator on the CPU for one use."""
    return torch.Generator().manual_seed(derive(seed, purpose, count))


def epoch_order(seeds: list[int], rows: int, epoch: int) -> Tensor:
    """Return (M, N) the order in which each member reads the rows in an epoch."""
    return torch.stack(
        [torch.randperm(rows, generator=generator(seed, "order", epoch)) for seed in seeds]
    )
