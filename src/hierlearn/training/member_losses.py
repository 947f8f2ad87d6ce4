"""MemberLosses: the mean loss of each of M stacked models on its own rows.

Where no loss mixes rows, all are computed in one call,

    l (M N, C) = unreduced losses of all rows,    mean of model k = sum of its rows / its count

and otherwise one after the other. A curriculum selects for each model from its own rows: link,
base and constraint are computed at once, then each model's loss object weighs its own class sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.losses import HCLLoss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.losses import Loss
    from hierlearn.training.processes import Processes


FEW = 1 << 18  # logits of all models, up to which launches cost more than memory


class MemberLosses:
    """The mean losses of stacked models.

    Args:
        losses: the loss of each model.
        processes: which process this is of how many; the mean is that of all of them.
        alike: whether the losses were made with the same options, so that one can do for all.
    """

    def __init__(self, losses: Sequence[Loss], processes: Processes, *, alike: bool) -> None:
        self.losses = losses
        self.processes = processes
        self.one_will_do = alike and len(losses) > 1 and processes.world == 1

    def __call__(
        self,
        logits: Tensor,
        targets: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
        stopped: Sequence[bool],
    ) -> Tensor:
        """Return (M,) means; that of a model that has stopped is 0, and nothing reaches it.

        Args:
            logits: (M, N, C).
            targets: (M, N, C).
            mask: (M, N, C) which targets are known; by default all.
            weights: (M, N) how much each row counts; by default 1.
            stopped: which models learn no more.
        """
        running = [number for number, over in enumerate(stopped) if not over]
        losses = [self.losses[number] for number in running]
        if len(running) < len(stopped):
            logits, targets = logits[running], targets[running]
            mask = None if mask is None else mask[running]
            weights = None if weights is None else weights[running]
        if self.one_will_do and weights is None and pays_in_one_call(losses[0], logits):
            found = stacked_means(losses, logits, targets, mask)
        else:
            found = torch.stack(
                [
                    self.mean_of(
                        loss,
                        logits[number],
                        targets[number],
                        None if mask is None else mask[number],
                        None if weights is None else weights[number],
                    )
                    for number, loss in enumerate(losses)
                ]
            )
        if len(running) == len(stopped):
            return found
        places = torch.tensor(running, device=found.device)
        return found.new_zeros(len(stopped)).index_put((places,), found)

    def mean_of(
        self,
        loss: Loss,
        logits: Tensor,
        targets: Tensor,
        mask: Tensor | None,
        weights: Tensor | None,
    ) -> Tensor:
        """Return the mean loss of one model, scaled so that the processes' average is global."""
        if weights is not None:
            return weighted_mean(loss, logits, targets, mask, weights, self.processes)
        value: Tensor = loss(logits, targets, mask)
        if self.processes.world == 1:
            return value
        count = torch.as_tensor(loss.count(targets, mask), dtype=torch.float64)
        share = count.to(logits.device) / self.processes.total(count).clamp_min(1)
        return value * share.to(value.dtype) * self.processes.world


def pays_in_one_call(loss: Loss, logits: Tensor) -> bool:
    """Whether one call can do for several such losses, and is the faster way.

    The hand-written pass of one HCL after the other is faster on the CPU; on a graphics processor
    the kernels are, but for batches so small that the number of launches is what costs.
    """
    if not isinstance(loss, HCLLoss):
        return loss.per_row
    if logits.device.type == "cpu":
        return not loss.has_fast_form
    return not loss.may_use_kernels or logits.numel() <= FEW


def stacked_means(
    losses: Sequence[Loss], logits: Tensor, targets: Tensor, mask: Tensor | None
) -> Tensor:
    """Return (M,) the mean loss of each model, all in one call.

    Args:
        losses: of the M models, alike but for what they have gathered.
        logits: (M, N, C).
        targets: (M, N, C).
        mask: (M, N, C) which targets are known; by default all.
    """
    first = losses[0]
    shape = logits.shape[:2]
    known = None if mask is None else mask.flatten(0, 1)
    flat, given = logits.flatten(0, 1), targets.flatten(0, 1)
    if isinstance(first, HCLLoss):
        values, errors = (one.view(*shape, -1) for one in first.constrained(flat, given, known))
        sums, wrong = values.detach().sum(dim=1), errors.sum(dim=(1, 2))
        weights = member_weights(losses, sums, wrong, shape[1])
        if weights is not None:
            values = values * weights[:, None]
    else:
        with first.unreduced():
            values = first(flat, given, known)  # (M N, C) or (M N,)
        values = values.view(*shape, *values.shape[1:])
    if values.dim() == 3:
        count = logits[0].numel() if mask is None else mask.sum(dim=(1, 2)).clamp_min(1)
    else:  # the mean of a loss of rows is over those with a label
        positive = targets > 0 if mask is None else (targets > 0) & mask
        count = positive.any(dim=2).sum(dim=1).clamp_min(1)
    totals: Tensor = values.flatten(1).sum(dim=1)
    return totals / count


def member_weights(
    losses: Sequence[Loss], sums: Tensor, errors: Tensor, rows: int
) -> Tensor | None:
    """Return (M, C) what each model's curriculum weighs its classes by; None without one.

    Args:
        losses: HCLLoss objects that are alike.
        sums: (M, C) the summed losses of each model's classes.
        errors: (M,) e_h of each model.
        rows: how many rows were summed.
    """
    curricula = [loss for loss in losses if isinstance(loss, HCLLoss)]
    first = curricula[0]
    if first.curriculum is None:
        return None
    if first.curriculum == "epoch":  # what each has gathered decides
        found = [loss.weigh(sums[k], errors[k], rows) for k, loss in enumerate(curricula)]
        return torch.stack([one for one in found if one is not None])
    with torch.no_grad():
        selected = first.choose(sums, errors, rows)
        weights = first.weights_of(selected, sums.dtype)
        for k, loss in enumerate(curricula):
            loss.note(selected[k], sums[k], errors[k], rows, weights[k])
    return weights


def weighted_mean(
    loss: Loss,
    logits: Tensor,
    targets: Tensor,
    mask: Tensor | None,
    weights: Tensor,
    processes: Processes,
) -> Tensor:
    """Return the mean of a loss where a row counts as its weight says.

    A row of weight 2 is as good as two rows, in what a curriculum selects too.
    """
    curricula = [part for part in loss.modules() if isinstance(part, HCLLoss)]
    try:
        for part in curricula:
            part.row_weights = weights
        with loss.unreduced():
            values: Tensor = loss(logits, targets, mask)  # (N, C) or (N,)
    finally:
        for part in curricula:
            part.row_weights = None
    known = torch.ones_like(targets, dtype=torch.bool) if mask is None else mask
    if values.dim() == 2:
        counted, weights = known, weights[:, None]
    else:  # the mean of a loss of rows is over those with a label
        counted = ((targets > 0) & known).any(dim=1)
    count = processes.total((counted * weights).sum()).clamp_min(1e-12)
    return (values * weights).sum() / count.to(values.dtype) * processes.world
