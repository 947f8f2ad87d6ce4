"""The hot path of HCL in one step: sigmoid, bce, the constraint of scope "levels", the curriculum.

With y in {0, 1} and z = (1 - 2y) x, natural bce is softplus(z), which grows with z. So the maximum
over shallower classes is a maximum of z,

    z_h(i, j) = max(z(i, j), max over k with m(k) < m(j) of z(i, k)),    L_j = sum_i softplus(z_h)

an entry is an error of e_h where z_h >= 0, and one pass down the levels with a running maximum
gives everything. The gradient of an entry that a shallower one binds belongs to that one: a pass
up the levels carries the weight owed to the running maximum until it meets the class that set it.

Rows are processed in chunks, so that intermediates stay in the CPU cache: the gradient is the only
N x C tensor that is allocated, and only the caller's logits and targets are saved for backward.
Where one chunk holds the batch, the gradient is computed at once, while z is in cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import softplus

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

CHUNK = 1 << 20  # entries at a time
LINEAR = 40.0  # from here on softplus(z) is z, exactly in double precision


def manual_hcl(
    logits: Tensor,
    targets: Tensor,
    mask: Tensor | None,
    sizes: tuple[int, ...],
    weigh: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return sum_j w_j L_j for natural bce.

    Args:
        logits: (N, C) in level order.
        targets: (N, C) of 0 and 1, any dtype.
        mask: (N, C) bool, which entries are known.
        sizes: the classes of each level; one level for no constraint at all.
        weigh: called once with the class sums L (C,) and e_h, returns the weights w (C,).
    """
    learns = torch.is_grad_enabled() and logits.requires_grad
    total: Tensor = _ManualHCL.apply(logits, targets, mask, sizes, weigh, learns)  # type: ignore[no-untyped-call]
    return total


class _ManualHCL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        targets: Tensor,
        mask: Tensor | None,
        sizes: tuple[int, ...],
        weigh: Callable[[Tensor, Tensor], Tensor],
        learns: bool,  # computed by the caller: in here gradients are off, and ctx ignores no_grad
    ) -> Tensor:
        chunks = row_chunks(logits)
        at_once = learns and len(chunks) == 1
        sums = errors = None
        for rows in chunks:
            known = None if mask is None else mask[rows]
            y = targets[rows].to(logits.dtype)
            z = signed(logits[rows], y, known)
            kept = torch.empty_like(z) if at_once else None
            peaks = descend(z, sizes, kept)
            losses = softplus(z, threshold=LINEAR)
            if known is not None:
                losses.mul_(known)
            summed = losses.sum(dim=0)
            torch.ge(z, 0, out=losses)
            if known is not None:
                losses.mul_(known)
            sums = summed if sums is None else sums.add_(summed)
            errors = losses.sum() if errors is None else errors.add_(losses.sum())
        if sums is None or errors is None:  # no rows
            sums, errors = logits.new_zeros(logits.shape[1]), logits.new_zeros(())
        weights = weigh(sums, errors)
        ctx.gradient = None
        if learns:
            ctx.save_for_backward(logits, targets, mask, weights)
            ctx.sizes = sizes
        if at_once:
            assert kept is not None
            ctx.gradient = ascend(z, y, known, sizes, kept, peaks, weights)
        return (sums * weights).sum()  # a matmul would have autocast's precision

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, targets, mask, weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient must be differentiable
            total = (class_sums(logits, targets, mask, ctx.sizes) * weights).sum()
            return *torch.autograd.grad(total, logits, upstream, create_graph=True), *[None] * 5
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is not None:  # a second pass through a retained graph makes it again
            return gradient.mul_(upstream), *[None] * 5
        gradient = torch.empty_like(logits)
        weights = weights * upstream
        for rows in row_chunks(logits):
            known = None if mask is None else mask[rows]
            y = targets[rows].to(logits.dtype)
            z = signed(logits[rows], y, known)
            kept = torch.empty_like(z)
            peaks = descend(z, ctx.sizes, kept)
            ascend(z, y, known, ctx.sizes, kept, peaks, weights, out=gradient[rows])
        return gradient, *[None] * 5


def row_chunks(logits: Tensor) -> list[slice]:
    """Return the slices of rows of each chunk; a GPU takes all rows at once."""
    rows, classes = logits.shape
    step = max(1, rows if logits.is_cuda else CHUNK // classes)
    return [slice(begin, begin + step) for begin in range(0, rows, step)]


def class_sums(
    logits: Tensor, targets: Tensor, mask: Tensor | None, sizes: tuple[int, ...]
) -> Tensor:
    """Return (C,) the class sums L by plain operations, which autograd differentiates twice."""
    z = signed(logits, targets.to(logits.dtype), mask)
    parts, peak = [], None
    for level in torch.split(z, list(sizes), dim=1):
        parts.append(level if peak is None else torch.where(level >= peak, level, peak))
        best = level.max(dim=1, keepdim=True).values
        peak = best if peak is None else torch.where(best > peak, best, peak)
    losses = softplus(torch.cat(parts, dim=1), threshold=LINEAR)
    return (losses if mask is None else torch.where(mask, losses, 0.0)).sum(dim=0)


def signed(logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
    """Return z = (1 - 2y) x, minus infinity where an entry is unknown."""
    z = torch.addcmul(logits, logits, targets, value=-2)
    return z if mask is None else z.masked_fill(~mask, -torch.inf)


def descend(
    z: Tensor, sizes: tuple[int, ...], kept: Tensor | None
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Turn z into z_h, in place, and mark in ``kept`` which entries nothing binds.

    Returns:
        For each level but the last (n, 1): its maximum, its first maximizer, the running maximum.
    """
    if kept is not None:
        kept[:, : sizes[0]].fill_(1)
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    begin = 0
    for number, size in enumerate(sizes):
        level = z[:, begin : begin + size]
        own = first_maximum(level) if number < len(sizes) - 1 else None
        if number:
            running = found[-1][2]
            if kept is not None:
                torch.ge(level, running, out=kept[:, begin : begin + size])
            torch.maximum(level, running, out=level)
        if own is not None:
            peak = torch.maximum(own[0], found[-1][2]) if found else own[0]
            found.append((*own, peak))
        begin += size
    return found


def first_maximum(level: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maximum of each row and the first place that holds it, both (n, 1)."""
    if level.device.type != "cpu":
        return level.max(dim=1, keepdim=True)
    # NumPy's argmax is vectorized along rows, torch's is not: three to six times faster.
    places = torch.from_numpy(level.numpy().argmax(axis=1, keepdims=True))
    return level.gather(1, places), places


def ascend(
    z: Tensor,
    targets: Tensor,
    mask: Tensor | None,
    sizes: tuple[int, ...],
    kept: Tensor,
    peaks: list[tuple[Tensor, Tensor, Tensor]],
    weights: Tensor,
    out: Tensor | None = None,
) -> Tensor:
    """Return the gradient, given z_h and the result of ``descend``; overwrites z and kept."""
    kept.mul_(weights)
    if mask is not None:
        kept.mul_(mask)
    end = z.shape[1]
    owed: Tensor | None = None  # (n, 1) the weight that deeper levels owe the running maximum
    for number in range(len(sizes) - 1, -1, -1):
        begin = end - sizes[number]
        level = kept[:, begin:end]
        if number:
            own = weights[begin:end]
            total = own.sum() if mask is None else (mask[:, begin:end] * own).sum(1, keepdim=True)
            bound = total - level.sum(dim=1, keepdim=True)
        if owed is not None:
            peak, place, _ = peaks[number]
            if number:
                # The running maximum was set here only if this level rose above those before.
                here = torch.where(peak > peaks[number - 1][2], owed, 0.0)
                level.scatter_add_(1, place, here)
                owed = bound.add_(owed).sub_(here)
            else:
                level.scatter_add_(1, place, owed)
        elif number:
            owed = bound
        end = begin
    slope = torch.ops.aten.softplus_backward(kept, z, 1, LINEAR)  # kept * sigmoid(z)
    return torch.addcmul(slope, slope, targets, value=-2, out=slope if out is None else out)
