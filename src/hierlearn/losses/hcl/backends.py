"""Backends of HCL: the one definition, and faster forms of what is computed most.

    PlainBackend    base, constraint and curriculum as they stand; takes everything
    SummedBackend   sigmoid and bce: the class sums by one hand-written pass over the levels
                    (cpu.py), or under torch.compile in functional form (compiled.py)
    CompiledBackend sigmoid or softmax, bce and trees: CPU kernels by numba, where it is installed
    TritonBackend   the kernels, on a GPU (triton.py)

All return the same loss and the same gradients; tests compare them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

import torch

from hierlearn.errors import HierlearnError
from hierlearn.kernels import rows
from hierlearn.kernels.class_sums import Constraint, weighted_sums
from hierlearn.links import SigmoidLink, SoftmaxLink
from hierlearn.losses.bases import BCE
from hierlearn.losses.checks import in_transform
from hierlearn.losses.hcl import triton
from hierlearn.losses.hcl.compiled import level_sums
from hierlearn.losses.hcl.cpu import manual_hcl
from hierlearn.losses.hcl.functional import constrained
from hierlearn.losses.loss import at_least

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.links import HeadOutput
    from hierlearn.losses.hcl.batch import Batch
    from hierlearn.losses.hcl.loss import HCLLoss

FEW = 1 << 18  # logits of all members up to which kernel launches cost more than memory


class Backend(Protocol):
    """One way to compute the loss.

    Attributes:
        takes_members: whether it computes all members of an ensemble at once.
    """

    takes_members: ClassVar[bool]

    def loss(self, loss: HCLLoss, batch: Batch) -> Tensor:
        """Return the reduced loss."""
        ...


class PlainBackend:
    """Base, constraint, curriculum and reduction one after another."""

    takes_members: ClassVar[bool] = True

    def loss(self, loss: HCLLoss, batch: Batch) -> Tensor:
        """Return the loss of one member, or of all at once."""
        output, targets, mask, weight, member = batch
        losses, errors = loss.constrained(output, targets, mask)  # (..., N, C)
        counted = losses.detach()
        rows: int | Tensor = targets.shape[-2]
        if weight is not None:
            counted, errors = (one * weight[..., None] for one in (counted, errors))
            rows = weight.sum(dim=-1)
        weights = loss.weigh(counted.sum(dim=-2), errors.sum(dim=(-2, -1)), rows, member)
        if weights is not None:
            losses = losses * weights[..., None, :]
        return loss.reduce(losses, targets, mask, weight)


class SummedBackend:
    """Class sums of natural bce over the levels, then their weights; manual or compiled."""

    takes_members: ClassVar[bool] = False

    def loss(self, loss: HCLLoss, batch: Batch) -> Tensor:
        """Return the loss of one member."""
        output, targets, mask, _, member = batch
        logits = output.float_logits
        weigh = summed_weights(loss, logits, mask, member)
        if torch.compiler.is_compiling():
            sums, errors = level_sums(logits, targets, mask, loss.level_sizes)
            return (sums * weigh(sums.detach(), errors)).sum()
        return manual_hcl(logits, targets, mask, loss.level_sizes, weigh)


class CompiledBackend:
    """Class sums of natural bce by CPU kernels; what is not finite is left to the others."""

    takes_members: ClassVar[bool] = False

    def loss(self, loss: HCLLoss, batch: Batch) -> Tensor:
        """Return the loss of one member."""
        output, targets, mask, _, member = batch
        logits = output.float_logits
        layout, link = loss.label_space.layout, output.link
        assert layout is not None
        assert link is not None

        def plain(x: Tensor) -> Tensor:
            pair = link.plain_log_probabilities(x)
            return constrained(BCE(), loss.scope, loss.hierarchy, pair, targets, mask)[0].sum(dim=0)

        constraint = Constraint(layout, isinstance(link, SoftmaxLink), loss.scope)
        weigh = summed_weights(loss, logits, mask, member)
        found = weighted_sums(constraint, logits, targets, mask, weigh, plain)
        if found is not None:
            return found
        summed = isinstance(link, SigmoidLink) and loss.scope != "ancestors"
        return (SUMMED if summed else PLAIN).loss(loss, batch)


def summed_weights(
    loss: HCLLoss, logits: Tensor, mask: Tensor | None, member: int | None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function that turns class sums of natural bce and errors into weights."""
    scale: float = loss.base.scale  # type: ignore[attr-defined]
    if loss.reduction == "sum":
        share: float | Tensor = scale
    else:
        known = logits.numel() if mask is None else mask.sum().to(logits.dtype)
        share = scale / at_least(known)

    def weigh(sums: Tensor, errors: Tensor) -> Tensor:
        class_losses = sums if scale == 1 else sums * scale
        weights = loss.weigh(class_losses, errors, len(logits), member)
        return torch.ones_like(sums) * share if weights is None else weights * share

    return weigh


PLAIN, SUMMED, TRITON = PlainBackend(), SummedBackend(), triton.TritonBackend()
COMPILED = CompiledBackend()


def choose_backend(loss: HCLLoss, output: HeadOutput, weight: Tensor | None) -> Backend:
    """Return the fastest backend for an output.

    Raises:
        HierlearnError: where ``fused=True`` and the kernels do not take the output.
    """
    logits = output.logits
    if loss.fused:
        reason = triton.unsupported_output(loss, output, weight)
        if reason is not None:
            raise HierlearnError(f"fused=True cannot take {reason}; pass fused=None")
    if logits is None or output.link is None or weight is not None:
        return PLAIN
    compiling = torch.compiler.is_compiling()
    if not compiling and in_transform():
        return PLAIN
    if loss.fused or (logits.is_cuda and may_use_kernels(loss, output)):
        if logits.numel() == 0:
            return PLAIN
        if output.members is None or loss.fused or logits.numel() > FEW:
            return TRITON
        return PLAIN  # so few that the number of launches is what costs
    if not isinstance(loss.base, BCE) or loss.reduction == "none":
        return PLAIN
    if can_use_rows(loss, output):
        return COMPILED
    summed = isinstance(output.link, SigmoidLink) and loss.scope != "ancestors"
    # inductor of torch 2.11 fails on the functional form on CUDA, whose row and column reductions
    # it fuses into one broken kernel.
    return SUMMED if summed and not (logits.is_cuda and compiling) else PLAIN


def can_use_rows(loss: HCLLoss, output: HeadOutput) -> bool:
    """Whether the CPU kernels take an output."""
    kind = type(output.link)
    if kind is not SigmoidLink and (kind is not SoftmaxLink or loss.scope == "levels"):
        return False
    return rows.can_use(output.float_logits) and loss.label_space.layout is not None


def may_use_kernels(loss: HCLLoss, output: HeadOutput) -> bool:
    """Whether the kernels take the options of a loss and an output on a GPU."""
    return (
        loss.fused is not False
        and triton.unsupported_output(loss, output, None) is None
        and triton.kernels_work(loss, output)
    )
