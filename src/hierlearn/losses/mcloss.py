"""MCLoss: the max constraint loss of C-HMCNN (Giunchiglia and Lukasiewicz, 2020).

    l(A) = -y_A ln max over B in D_A of y_B h_B - (1 - y_A) ln(1 - max over B in D_A of h_B)

with h = sigmoid(x) and D_A the class A and its descendants. A positive class takes its best
positive descendant, so that no wrong one teaches it; a negative class takes its worst descendant.
The sigmoid is monotone, so both maxima are of logits, climbing the hierarchy level by level: memory
O(N * (C + E)), where the N x C x C tensor of the published code is quadratic in C. Predict with the
max link: the sigmoids by themselves were not trained. A head without logits gives h itself; its
logarithms are monotone in h, so the same maxima are taken of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.nn.functional import softplus

from hierlearn.kernels import mcloss as kernels
from hierlearn.kernels import rows, trial
from hierlearn.links import MaxLink, SigmoidLink
from hierlearn.losses.checks import check_targets
from hierlearn.losses.loss import ElementwiseLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput, Link


def mcloss(
    logits: Tensor, targets: Tensor, hierarchy: Hierarchy, mask: Tensor | None = None
) -> Tensor:
    """Return (N, C) the max constraint loss of every class.

    Args:
        logits: (N, C), read by a sigmoid.
        targets: (N, C) of 0 and 1, closed under ancestors.
        hierarchy: the taxonomy, tree or DAG.
        mask: (N, C) bool, which entries are known; unknown ones are left out of the maxima.
    """
    positive = targets > 0.5
    known = logits if mask is None else logits.masked_fill(~mask, -torch.inf)
    best_positive = hierarchy.max_up(known.masked_fill(~positive, -torch.inf))
    best = hierarchy.max_up(known)
    # Minus infinity, where nothing is known below, must not meet the gradient of softplus.
    margin = torch.where(positive, -best_positive, best)
    usable = torch.isfinite(margin)
    return torch.where(usable, softplus(torch.where(usable, margin, 0.0)), 0.0)


def mcloss_of_pair(
    output: HeadOutput, targets: Tensor, hierarchy: Hierarchy, mask: Tensor | None = None
) -> Tensor:
    """Return the same of a head without logits, from log h and log(1 - h)."""
    positive = targets > 0.5
    hidden = torch.zeros_like(positive) if mask is None else ~mask
    log_h = output.log_p.masked_fill(~positive | hidden, -torch.inf)
    log_rest = (-output.log_not_p).masked_fill(hidden, -torch.inf)
    margin = torch.where(positive, -hierarchy.max_up(log_h), hierarchy.max_up(log_rest))
    usable = torch.isfinite(margin)
    return torch.where(usable, margin, 0.0)


class MCLoss(ElementwiseLoss):
    """Max constraint loss; targets are 0 or 1 and closed under ancestors.

    Args:
        label_space: what can be predicted, or a Hierarchy; tree or DAG.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(mcloss)
    reading_link = "max"
    reads = "scores"
    weighs_classes = True
    rows_independent = True

    def forward(
        self,
        output: HeadOutput | Tensor,
        targets: Tensor,
        mask: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch; by kernels for logits on a GPU, a tree and known targets."""
        read = self.read(output)
        logits = read.logits if self.reads_as_scores(read.link) else None
        layout = None
        if (
            logits is not None
            and mask is None
            and weight is None
            and self.class_weight is None
            and self.reduction != "none"
            and kernels.can_use(logits)
            and trial.passes("MCLoss", logits.device, try_kernels)
        ):
            layout = self.label_space.layout
        if logits is None or layout is None:
            return super().forward(read, targets, mask, weight)
        check_targets(read, targets, mask, weight)
        self.check_values(targets, mask)
        return kernels.mcloss(logits, targets, layout, self.reduction == "mean", self.plain_loss)

    @classmethod
    def reads_as_scores(cls, link: Link | None) -> bool:
        """Also by the max link, which takes the maxima of the same sigmoids when predicting."""
        return isinstance(link, (SigmoidLink, MaxLink))

    def plain_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the same by operations that can be differentiated repeatedly."""
        return self.reduce(mcloss(logits, targets, self.hierarchy), targets, None, None)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the loss of every class."""
        if output.logits is None or not self.reads_as_scores(output.link):
            return mcloss_of_pair(output, targets, self.hierarchy, mask)
        return mcloss(output.float_logits, targets, self.hierarchy, mask)

    def kernel_sums(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None
    ) -> Tensor | None:
        """Return the sums by a CPU kernel: on trees, where everything is known."""
        if mask is not None or output.logits is None or not self.reads_as_scores(output.link):
            return None

        def plain(x: Tensor) -> Tensor:
            return mcloss(x, targets, self.hierarchy).sum(dim=1)

        weights = (1.0, 0.0)
        return sums_by_kernel(self.label_space, output.float_logits, targets, weights, plain)


def try_kernels(device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what the GPU kernels compute, with what they must."""
    from hierlearn.hierarchy import Hierarchy

    loss = MCLoss(Hierarchy.from_parents(trial.example_parents()), reduction="sum").to(device)
    targets = loss.hierarchy.encode(trial.example_classes(), numbers=True).to(device)
    layout = loss.label_space.layout
    assert layout is not None
    yield from trial.compare_functions(
        lambda x: [kernels.mcloss(x, targets, layout, False, loss.plain_loss)[None]],
        lambda x: [loss.plain_loss(x, targets)[None]],
        trial.example_inputs(device),
    )


def sums_by_kernel(
    label_space: LabelSpace,
    logits: Tensor,
    targets: Tensor,
    weights: tuple[float, float],
    plain: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """Return (N,) sums of MCLoss and bce, weighted, by a CPU kernel; None where it cannot."""
    layout = label_space.layout if rows.can_use(logits, targets) else None
    if layout is None:
        return None
    from hierlearn.kernels.entries_numba import mcloss as kernel

    constants = (rows.tree_of(layout), *map(rows.as_number, weights))
    return rows.row_losses(kernel, logits, targets, None, constants, plain)
