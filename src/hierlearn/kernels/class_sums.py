"""HCL by CPU kernels under autograd: class sums, the weights of classes, then the gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from hierlearn.kernels.rows import as_flags, as_mask, groups_of, on_threads, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.kernels.tree_layout import TreeLayout


class Constraint(NamedTuple):
    """What the kernels compute.

    Attributes:
        layout: the tree.
        softmax: whether logits are read by a softmax over the terminal classes, or by sigmoids.
        scope: "ancestors", None, or with sigmoids "levels".
    """

    layout: TreeLayout
    softmax: bool
    scope: str | None


class Job(NamedTuple):
    """The kernels of a batch, and what both take between rows and results."""

    sums: Any
    gradient: Any
    arguments: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(N, C)."""
        rows, classes = self.arguments[0].shape
        return rows, classes


def job_of(constraint: Constraint, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Job:
    """Return the kernels that compute a constraint."""
    from hierlearn.kernels import bound_numba, hcl_numba, hcl_sigmoid_numba

    layout, softmax, scope = constraint
    tree = tree_of(layout)
    batch: tuple[Any, ...] = (logits.numpy(), as_flags(targets))
    if softmax and scope == "ancestors" and mask is None:
        return Job(bound_numba.bound_sums, bound_numba.bound_gradient, (*batch, tree))
    batch = (*batch, as_mask(mask), tree)
    if softmax:
        kernels = hcl_numba.softmax_sums, hcl_numba.softmax_gradient
        return Job(*kernels, (*batch, scope == "ancestors"))
    kernels = hcl_sigmoid_numba.sigmoid_sums, hcl_sigmoid_numba.sigmoid_gradient
    if scope == "ancestors":
        return Job(*kernels, (*batch, tree.parent, tree.first, True))
    return Job(*kernels, (*batch, *groups_of(layout, scope), False))


def weighted_sums(
    constraint: Constraint,
    logits: Tensor,
    targets: Tensor,
    mask: Tensor | None,
    weigh: Callable[[Tensor, Tensor], Tensor],
    plain: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """Return sum_j w_j L_j for natural bce; None where logits are not finite.

    Args:
        constraint: link and scope.
        logits: (N, C) float32.
        targets: (N, C) of 0 and 1, any dtype.
        mask: (N, C) bool, which entries are known.
        weigh: called once with the class sums L (C,) and e_h, returns the weights w (C,).
        plain: logits -> (C,) class sums as a differentiable function, for a gradient that is
            differentiated again.
    """
    job = job_of(constraint, logits.detach().contiguous(), targets, mask)
    found = class_sums(job)
    if found is None:
        return None
    sums, errors = found
    weights = weigh(sums, errors)
    total = (sums * weights).sum()  # a matmul would have autocast's precision
    if not (torch.is_grad_enabled() and logits.requires_grad):
        return total

    def run() -> Tensor:
        return gradient(job, weights)

    result: Tensor = _WeightedSums.apply(logits, total, run(), run, weights, plain)  # type: ignore[no-untyped-call]
    return result


def class_sums(job: Job) -> tuple[Tensor, Tensor] | None:
    """Return the class sums and the number of errors; None where logits are not finite."""
    rows, classes = job.shape

    def work(begin: int, end: int) -> tuple[Any, int]:
        sums = np.zeros(classes)
        return sums, job.sums(begin, end, *job.arguments, sums)

    parts = on_threads(work, rows, rows * classes)
    if any(errors < 0 for _, errors in parts):
        return None
    sums = torch.from_numpy(sum(part for part, _ in parts)).to(torch.float32)
    return sums, torch.tensor(float(sum(errors for _, errors in parts)))


def gradient(job: Job, weights: Tensor) -> Tensor:
    """Return (N, C) the gradient of the weighted class sums."""
    rows, classes = job.shape
    found = torch.empty(rows, classes)
    given, dx = weights.detach().contiguous().numpy(), found.numpy()

    def work(begin: int, end: int) -> None:
        job.gradient(begin, end, *job.arguments, given, dx)

    on_threads(work, rows, rows * classes)
    return found


class _WeightedSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        total: Tensor,
        found: Tensor,
        run: Callable[[], Tensor],
        weights: Tensor,
        plain: Callable[[Tensor], Tensor],
    ) -> Tensor:
        ctx.save_for_backward(logits, weights)
        ctx.gradient, ctx.run, ctx.plain = found, run, plain
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient must be differentiable
            total = (ctx.plain(logits) * weights).sum()
            (found,) = torch.autograd.grad(total, logits, upstream, create_graph=True)
            return found, *[None] * 5
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:  # a second pass through a retained graph makes it again
            gradient = ctx.run()
        return gradient.mul_(upstream), *[None] * 5
