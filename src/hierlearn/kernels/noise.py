"""Dropout in one launch for all members of an ensemble."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from hierlearn.kernels.choose import has_triton

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 1024

log = logging.getLogger(__name__)
failures: list[str] = []  # why the kernel cannot be compiled here, if it was tried


def can_use(seeds: Tensor) -> bool:
    """Whether the kernel may run where the seeds are."""
    return seeds.is_cuda and not failures and not torch.compiler.is_compiling() and has_triton()


def dropout_scales(seeds: Tensor, begin: int, size: int, limit: int, scale: float) -> Tensor | None:
    """Return (M, size) float32 what dropout multiplies entries with.

    Args:
        seeds: (M,) int64.
        begin: the number of the first draw.
        size: the entries of a member.
        limit: the largest int16 draw of an entry that is kept.
        scale: of what is kept.

    Returns:
        None where Triton cannot compile, as without a C compiler.
    """
    scales = torch.empty(len(seeds), size, dtype=torch.float32, device=seeds.device)
    grid = (-(-size // BLOCK), len(seeds))
    try:
        from hierlearn.kernels.entries_triton import write_scales

        write_scales[grid](seeds, scales, begin, size, limit, scale, B=BLOCK)
    except Exception as error:  # of Triton, of a compiler or of the system
        log.debug("dropout without its kernel: %s", error)
        failures.append(str(error))
        return None
    return scales
