"""The hot path of HCL for torch.compile: the same sums as ``manual_hcl``, in functional form.

The compiler fuses pointwise operations and reductions as long as there is nothing else: no buffers,
no chunks, no scatter. The gradient of the running maximum goes to one column of each row, written
as a comparison of column numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import softplus

from hierlearn.losses.hcl.cpu import LINEAR

if TYPE_CHECKING:
    from torch import Tensor


def level_sums(
    logits: Tensor, targets: Tensor, mask: Tensor | None, sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return (C,) the summed natural l_h of each class, and e_h; see ``manual_hcl``."""
    found = _LevelSums.apply(logits, targets, mask, sizes)  # type: ignore[no-untyped-call]
    return found[0], found[1]


def signs_of(targets: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 1 - 2y."""
    return 1 - 2 * targets.to(dtype)


def signed(logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
    """Return z = (1 - 2y) x, minus infinity where an entry is unknown."""
    z = logits * signs_of(targets, logits.dtype)
    return z if mask is None else torch.where(mask, z, -torch.inf)


class _LevelSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, mask: Tensor | None, sizes: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        z = signed(logits, targets, mask)
        levels = torch.split(z, list(sizes), dim=1)
        known = None if mask is None else torch.split(mask, list(sizes), dim=1)
        sums: list[Tensor] = []
        errors = logits.new_zeros(())
        ones = logits.new_ones(len(logits))
        peaks: list[Tensor] = []  # (N, 1) the running maximum
        places: list[Tensor] = []  # (N, 1) the column that set it
        begin = 0
        for number, level in enumerate(levels):
            bound = torch.maximum(level, peaks[-1]) if number else level
            losses = softplus(bound, threshold=LINEAR)
            wrong = (bound >= 0).to(logits.dtype)
            if known is not None:
                losses, wrong = losses * known[number], wrong * known[number]
            sums.append(ones @ losses)
            errors = errors + wrong.sum()
            if number < len(sizes) - 1:
                peak = level.amax(dim=1, keepdim=True)
                place = level.argmax(dim=1, keepdim=True) + begin
                if number:
                    rose = peak > peaks[-1]
                    peak = torch.where(rose, peak, peaks[-1])
                    place = torch.where(rose, place, places[-1])
                peaks.append(peak)
                places.append(place)
            begin += sizes[number]
        ctx.save_for_backward(logits, targets, mask, *peaks, *places)
        ctx.sizes = sizes
        ctx.mark_non_differentiable(errors)
        return torch.cat(sums), errors

    @staticmethod
    def backward(ctx: Any, weights: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        logits, targets, mask, *saved = ctx.saved_tensors
        peaks, places = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        z = signed(logits, targets, mask)
        sizes = ctx.sizes
        answers: list[Tensor] = []  # what each entry answers for, by level
        owed: list[Tensor] = []  # (N, 1) per level but the first: the weight of its bound entries
        begin = 0
        for number, size in enumerate(sizes):
            own = weights[begin : begin + size].expand(len(logits), -1)
            if mask is not None:
                own = own * mask[:, begin : begin + size]
            if number:
                free = z[:, begin : begin + size] >= peaks[number - 1]
                owed.append(torch.where(free, 0.0, own).sum(dim=1, keepdim=True))
                own = torch.where(free, own, 0.0)
            answers.append(own)
            begin += size
        total = torch.cat(answers, dim=1)
        columns = torch.arange(z.shape[1], device=z.device)
        for place, credit in zip(places, owed, strict=True):
            total = total + torch.where(columns == place, credit, 0.0)
        return z.sigmoid() * total * signs_of(targets, z.dtype), None, None, None
