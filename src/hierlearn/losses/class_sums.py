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
from torch.nn.functional import softplus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

CHUNK = 1 << 17  # entries at a time; a few buffers of this many floats fit into a cache of 2 MB
LINEAR = 40.0  # from here on softplus(z) is z, exactly in double precision


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


def chunks(
    logits: Tensor, targets: Tensor, mask: Tensor | None
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor, Tensor | None]]:
    """Yield (rows, z, work, targets, mask): z = (1 - 2y) x, minus infinity where unknown.

    ``z`` and ``work`` are buffers that the next chunk takes over.
    """
    rows, classes = logits.shape
    step = max(1, rows if logits.is_cuda else min(rows, CHUNK // classes))
    z_buffer, work_buffer = logits.new_empty((2, step, classes)).unbind()
    for begin in range(0, rows, step):
        count = min(step, rows - begin)
        part = slice(begin, begin + count)
        z, work = z_buffer[:count], work_buffer[:count]
        x, y = logits[part], targets[part].to(logits.dtype)
        torch.addcmul(x, x, y, value=-2, out=z)
        known = None if mask is None else mask[part]
        if known is not None:
            z.masked_fill_(~known, -torch.inf)
        yield part, z, work, y, known


class _ClassSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, mask: Tensor | None, sizes: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        sums, errors = logits.new_zeros(logits.shape[1]), logits.new_zeros(())
        peaks = logits.new_empty((len(logits), len(sizes) - 1))  # the running maximum
        for part, z, work, _, known in chunks(logits, targets, mask):
            begin = 0
            for level, size in enumerate(sizes):
                columns = z[:, begin : begin + size]
                if level:
                    torch.maximum(columns, peaks[part, level - 1 : level], out=columns)
                if level < len(sizes) - 1:
                    torch.amax(columns, dim=1, out=peaks[part, level])
                begin += size
            torch.ge(z, 0, out=work)
            losses = softplus(z, threshold=LINEAR)
            if known is not None:
                work.mul_(known)
                losses.mul_(known)
            errors += work.sum()
            sums += losses.sum(dim=0)
        ctx.save_for_backward(logits, targets, mask, peaks)
        ctx.sizes = sizes
        ctx.mark_non_differentiable(errors)
        return sums, errors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        logits, targets, mask, peaks = ctx.saved_tensors
        gradient = torch.empty_like(logits)
        for part, z, work, y, known in chunks(logits, targets, mask):
            settle(z, work, known, peaks[part], weights, ctx.sizes)
            z.sigmoid_().mul_(work)
            torch.addcmul(z, z, y, value=-2, out=gradient[part])
        return gradient, None, None, None


def settle(
    z: Tensor,
    answers: Tensor,
    mask: Tensor | None,
    peaks: Tensor,
    weights: Tensor,
    sizes: tuple[int, ...],
) -> None:
    """Write into ``answers`` the weight of each entry: its own unless bound, and what it binds."""
    end = z.shape[1]
    owed: Tensor | None = None  # (n, 1) the weight that deeper levels owe the running maximum
    for level in range(len(sizes) - 1, -1, -1):
        begin = end - sizes[level]
        columns, kept, own = z[:, begin:end], answers[:, begin:end], weights[begin:end]
        known = None if mask is None else mask[:, begin:end]
        before, bound = owed, weights.new_zeros(())
        if level:
            torch.ge(columns, peaks[:, level - 1 : level], out=kept)
            kept.mul_(own)
            if known is None:
                bound = own.sum() - kept.sum(dim=1, keepdim=True)
            else:
                kept.mul_(known)
                bound = (known.to(own.dtype) @ own)[:, None] - kept.sum(dim=1, keepdim=True)
            owed = bound
        else:
            kept.copy_(own.expand_as(kept))
            if known is not None:
                kept.mul_(known)
        if before is not None:
            here = before
            if level:
                # The running maximum was set here only if this level rose above those before.
                rose = peaks[:, level : level + 1] > peaks[:, level - 1 : level]
                here = torch.where(rose, before, 0.0)
                owed = bound + torch.where(rose, 0.0, before)
            kept.scatter_add_(1, first_peak(columns, peaks[:, level : level + 1]), here)
        end = begin


def first_peak(columns: Tensor, peak: Tensor) -> Tensor:
    """Return (n, 1) the first column that attains the peak; any where none does."""
    if columns.is_cuda:
        return columns.argmax(dim=1, keepdim=True)
    # argmax on a processor is ten times slower than a comparison and a product with 0, 1, 2, ...
    hits = torch.empty_like(columns)
    torch.eq(columns, peak, out=hits)
    if bool((hits.sum(dim=1) > 1).any()):  # a tie; the comparison cannot tell the first
        return columns.argmax(dim=1, keepdim=True)
    places = torch.arange(columns.shape[1], dtype=columns.dtype)
    return (hits @ places).long()[:, None]
