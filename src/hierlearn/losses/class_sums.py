"""The hot path of HCL: sigmoid, bce and the constraint of scope "levels", summed over the rows.

With y in {0, 1} and z = (1 - 2y) x, natural bce is softplus(z), which grows with z. So the maximum
over shallower classes is a maximum of z,

    z_h(i, j) = max(z(i, j), max over k with m(k) < m(j) of z(i, k)),    L_j = sum_i softplus(z_h)

an entry is an error of e_h where z_h >= 0, and one pass down the levels with a running maximum
gives everything. The gradient of an entry that a shallower one binds belongs to that one: the
backward pass goes up the levels and carries the weight owed to the running maximum until it meets
the class that attained it.

Rows are taken a few at a time, so that what is in between stays in the processor's cache: no N x C
tensor is made but the gradient, and none is saved but the caller's own logits and targets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

CHUNK = 1 << 17  # entries at a time; a few buffers of this many floats fit into a cache of 2 MB


def class_sums(
    logits: Tensor, targets: Tensor, mask: Tensor | None, sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return (C,) the summed natural l_h of each class, and e_h.

    Args:
        logits: (N, C) in level order.
        targets: (N, C) of 0 and 1, any dtype.
        mask: (N, C) bool, which entries are known.
        sizes: the classes of each level; one level for no constraint at all.
    """
    sums, errors = _ClassSums.apply(logits, targets, mask, sizes)  # type: ignore[no-untyped-call]
    return sums, errors


class _Chunk:
    """Some rows: z in a buffer that the next chunk takes over, and a second buffer to work in."""

    def __init__(self, z: Tensor, work: Tensor, targets: Tensor, mask: Tensor | None) -> None:
        self.z, self.work, self.targets, self.mask = z, work, targets, mask


def chunks(logits: Tensor, targets: Tensor, mask: Tensor | None) -> Iterator[tuple[slice, _Chunk]]:
    """Yield slices of rows with their z = (1 - 2y) x, minus infinity where unknown."""
    rows, classes = logits.shape
    step = max(1, rows if logits.is_cuda else min(rows, CHUNK // classes))
    z_buffer, work_buffer = (logits.new_empty((step, classes)) for _ in range(2))
    for begin in range(0, rows, step):
        part = slice(begin, min(begin + step, rows))
        count = part.stop - begin
        z, work = z_buffer[:count], work_buffer[:count]
        x, y = logits[part], targets[part].to(logits.dtype)
        torch.addcmul(x, x, y, value=-2, out=z)
        known = None if mask is None else mask[part]
        if known is not None:
            z.masked_fill_(~known, -torch.inf)
        yield part, _Chunk(z, work, y, known)


class _ClassSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, mask: Tensor | None, sizes: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        sums = logits.new_zeros(logits.shape[1])
        errors = logits.new_zeros(())
        peaks = logits.new_empty((len(logits), len(sizes) - 1))  # the running maximum
        for part, chunk in chunks(logits, targets, mask):
            z, work = chunk.z, chunk.work
            begin = 0
            for level, size in enumerate(sizes):
                columns = z[:, begin : begin + size]
                if level:
                    torch.maximum(columns, peaks[part, level - 1 : level], out=columns)
                if level < len(sizes) - 1:
                    torch.amax(columns, dim=1, out=peaks[part, level])
                begin += size
            torch.ge(z, 0, out=work)
            if chunk.mask is not None:
                work.mul_(chunk.mask)
            errors += work.sum()
            # softplus(z) = max(z, 0) + log1p(exp(-|z|))
            torch.abs(z, out=work).neg_().exp_().log1p_()
            z.clamp_min_(0).add_(work)
            if chunk.mask is not None:
                z.mul_(chunk.mask)
            sums += z.sum(dim=0)
        ctx.save_for_backward(logits, targets, mask, peaks)
        ctx.sizes = sizes
        ctx.mark_non_differentiable(errors)
        return sums, errors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        logits, targets, mask, peaks = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for part, chunk in chunks(logits, targets, mask):
            z, work = chunk.z, chunk.work
            settle(chunk, peaks[part], weights, ctx.sizes)
            z.sigmoid_().mul_(work)
            torch.addcmul(z, z, chunk.targets, value=-2, out=gradient[part])
        return gradient, None, None, None


def settle(chunk: _Chunk, peaks: Tensor, weights: Tensor, sizes: tuple[int, ...]) -> None:
    """Write into ``chunk.work`` what each entry answers for: its own weight and what it binds."""
    z, work = chunk.z, chunk.work
    end = z.shape[1]
    owed: Tensor | None = None  # (n,) the weight that deeper levels owe the running maximum
    for level in range(len(sizes) - 1, -1, -1):
        begin = end - sizes[level]
        columns, kept, own = z[:, begin:end], work[:, begin:end], weights[begin:end]
        known = None if chunk.mask is None else chunk.mask[:, begin:end]
        if level:
            torch.ge(columns, peaks[:, level - 1 : level], out=kept).mul_(own)
        else:
            kept.copy_(own.expand_as(kept))
        if known is not None:
            kept.mul_(known)
        bound = None
        if level:
            total = own.sum() if known is None else known.to(own.dtype) @ own
            bound = total - kept.sum(dim=1)
        if owed is not None:
            place = columns.argmax(dim=1, keepdim=True)
            if level:
                # The running maximum was set here only if this level rose above those before.
                here = peaks[:, level] > peaks[:, level - 1]
                kept.scatter_add_(1, place, torch.where(here, owed, 0.0)[:, None])
                owed = torch.where(here, 0.0, owed)
            else:
                kept.scatter_add_(1, place, owed[:, None])
        if bound is not None:
            owed = bound if owed is None else owed + bound
        end = begin
