"""HCL by CPU kernels under autograd: class sums, the weights of classes, then the gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from hierlearn.kernels.rows import as_mask, as_targets, on_threads, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.kernels.tree_layout import TreeLayout

    Sums = tuple[Tensor, Tensor]

BOUND = 3  # what a batch of the kernels without a mask holds: logits, targets and the tree


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

    @property
    def is_bound(self) -> bool:
        """Whether ancestors bind under a softmax, which has kernels of its own."""
        return self.softmax and self.scope == "ancestors"

    def constants(self, masked: bool) -> tuple[Any, ...]:
        """Return what the kernels take between the batch and the results."""
        tree = tree_of(self.layout)
        if self.is_bound and not masked:
            return (tree,)
        if self.softmax:
            return tree, self.is_bound
        if self.scope == "ancestors":
            return tree, tree.parent, tree.first, True
        first = [0, self.layout.classes]
        if self.scope == "levels":
            first = self.layout.level_offsets.tolist()
        group = np.repeat(np.arange(len(first) - 1), np.diff(first)).astype(np.uint32)
        return tree, group, np.array(first, dtype=np.int32), False


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
    x = logits.detach().contiguous()
    batch: tuple[Any, ...] = (x.numpy(), as_targets(targets))
    if not (constraint.is_bound and mask is None):
        batch = (*batch, as_mask(mask))
    batch = (*batch, *constraint.constants(mask is not None))
    found = class_sums(constraint, batch)
    if found is None:
        return None
    sums, errors = found
    weights = weigh(sums, errors)
    total = (sums * weights).sum()  # a matmul would have autocast's precision
    if not (torch.is_grad_enabled() and logits.requires_grad):
        return total

    def run() -> Tensor:
        return gradient(constraint, batch, weights)

    result: Tensor = _WeightedSums.apply(logits, total, run(), run, weights, plain)  # type: ignore[no-untyped-call]
    return result


def class_sums(constraint: Constraint, batch: tuple[Any, ...]) -> Sums | None:
    """Return the class sums and the number of errors; None where logits are not finite."""
    kernel = kernels_of(constraint, len(batch))[0]
    rows, classes = batch[0].shape

    def work(begin: int, end: int) -> tuple[Any, int]:
        sums = np.zeros(classes)
        return sums, kernel(begin, end, *batch, sums)

    parts = on_threads(work, rows, rows * classes)
    if any(errors < 0 for _, errors in parts):
        return None
    sums = torch.from_numpy(sum(part for part, _ in parts)).to(torch.float32)
    return sums, torch.tensor(float(sum(errors for _, errors in parts)))


def kernels_of(constraint: Constraint, arguments: int) -> tuple[Any, Any]:
    """Return the kernels of class sums and of the gradient, by how much a batch holds."""
    if not constraint.softmax:
        from hierlearn.kernels.hcl_numba import sigmoid_gradient, sigmoid_sums

        return sigmoid_sums, sigmoid_gradient
    if arguments == BOUND:
        from hierlearn.kernels.bound_numba import bound_gradient, bound_sums

        return bound_sums, bound_gradient
    from hierlearn.kernels.hcl_numba import softmax_gradient, softmax_sums

    return softmax_sums, softmax_gradient


def gradient(constraint: Constraint, batch: tuple[Any, ...], weights: Tensor) -> Tensor:
    """Return (N, C) the gradient of the weighted class sums."""
    kernel = kernels_of(constraint, len(batch))[1]
    rows, classes = batch[0].shape
    found = torch.empty(rows, classes)
    dx, given = found.numpy(), weights.detach().contiguous().numpy()
    on_threads(lambda begin, end: kernel(begin, end, *batch, given, dx), rows, rows * classes)
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
