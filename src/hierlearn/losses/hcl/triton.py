"""HCL by the Triton kernels of ``kernels/hcl``: what they take, and the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.kernels import hcl as kernels
from hierlearn.links import SigmoidLink
from hierlearn.losses.bases import BCE, FocalBase

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.losses.hcl.loss import HCLLoss


def obstacle(loss: HCLLoss) -> str | None:
    """Return what of a loss the kernels do not cover, or None."""
    if not isinstance(loss.link, SigmoidLink):
        return f"link {type(loss.link).__name__}, but 'sigmoid' only"
    if not isinstance(loss.base, (BCE, FocalBase)):
        return f"base {loss.base!r}, but 'bce', 'bce2' and 'focal' only"
    if loss.scope == "ancestors":
        return "scope 'ancestors', but 'levels' and None only"
    if loss.reduction == "none":
        return "reduction 'none', but 'mean' and 'sum' only"
    return None


def misfit(logits: Tensor) -> str | None:
    """Return what of the logits the kernels do not take, or None."""
    if torch.compiler.is_compiling():
        return "logits inside torch.compile, which has no need of them"
    if logits.dtype not in kernels.LOGITS:
        return f"logits of {logits.dtype}, but of float32, bfloat16 and float16 only"
    if not kernels.has_triton():
        return "a computer without Triton; install hierlearn[gpu]"
    if not (logits.is_cuda or kernels.interpreted()):
        return f"logits on {logits.device}, but on a graphics processor only"
    return None


def base_of(loss: HCLLoss) -> kernels.BaseOptions:
    """Return the base of a loss as the kernels take it."""
    base: Any = loss.base
    if isinstance(base, BCE):
        return kernels.BaseOptions(scale=base.scale)
    positive, negative = (1.0, 1.0) if base.alpha is None else (base.alpha, 1 - base.alpha)
    return kernels.BaseOptions(1.0, True, positive, negative, base.gamma)


def task_of(loss: HCLLoss, *, selects: bool) -> kernels.KernelSpec:
    """Return what the kernels compute for a loss, with or without the selection."""
    selection = None
    if selects:
        fixed = loss.threshold is not None
        selection = kernels.SelectionOptions(loss.floor, loss.normalize == "mean", fixed)
    return kernels.KernelSpec(loss.level_sizes, base_of(loss), loss.reduction == "mean", selection)


def again(loss: HCLLoss, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return the loss of a batch like one before, at which all was checked; None if it is not."""
    made = loss.kernels
    if made is None or not made[0] or loss.threshold is not None:
        return None
    if loss.validate or loss.row_weights is not None:
        return None
    plan = made[1].plans.get(kernels.key_of(logits, targets, mask))
    return None if plan is None else kernels.step(plan, logits, targets, mask, None, loss.keep)


def kernel_hcl(
    loss: HCLLoss, logits: Tensor, targets: Tensor, mask: Tensor | None, *, alone: bool
) -> Tensor:
    """Return the loss of a batch of at least one row.

    Args:
        loss: whose options apply, and which is told what was selected.
        logits: (N, C).
        targets: (N, C).
        mask: (N, C), or None.
        alone: whether this process has the whole batch.
    """
    limit = None if loss.threshold is None else loss.fixed_threshold
    selects = (
        loss.curriculum == "batch" and alone and (limit is None or limit.device == logits.device)
    )
    made = loss.kernels
    if made is None or made[0] is not selects:
        made = (selects, kernels.Kernels(task_of(loss, selects=selects)))
        loss.__dict__["kernels"] = made
    if selects:
        return made[1](logits, targets, mask, threshold=limit, on_result=loss.keep)
    rows = len(logits)
    return made[1](logits, targets, mask, weigh=lambda sums, errors: loss.weigh(sums, errors, rows))
