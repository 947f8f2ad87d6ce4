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

from hierlearn.kernels import choose, tree
from hierlearn.links import MaxLink, SigmoidLink, link_kind
from hierlearn.losses.loss import ElementwiseLoss

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
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

    def compute(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        """Return the loss of a batch; by kernels for logits on a GPU, a tree and known targets."""
        logits, space = output.logits, self.label_space
        reduced = self.reduction != "none" and weight is None and self.class_weight is None
        key = ("mcloss", link_kind(output.link), None)
        if (
            logits is not None
            and reduced
            and output.members is None
            and choose.gpu_kernels(key, logits, space, masked=mask is not None) is not None
            and choose.passes("MCLoss", logits.device, try_kernels)
        ):
            assert space.layout is not None
            mean = self.reduction == "mean"
            return tree.mcloss(logits, targets, space.layout, mean, self.plain_loss)
        return super().compute(output, targets, mask, weight)

    def reads_as_scores(self, link: Link | None) -> bool:
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

    def formula(self) -> tuple[str, tuple[Any, ...]] | None:
        """Return the name of the kernel; what MCLoss and bce weigh in it."""
        return "mcloss", (1.0, 0.0)


def try_kernels(device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what the GPU kernels compute, with what they must."""
    from hierlearn.hierarchy import Hierarchy

    loss = MCLoss(Hierarchy.from_parents(choose.example_parents()), reduction="sum").to(device)
    targets = loss.hierarchy.encode(choose.example_classes(), numbers=True).to(device)
    layout = loss.label_space.layout
    assert layout is not None
    yield from choose.compare_functions(
        lambda x: [tree.mcloss(x, targets, layout, False, loss.plain_loss)[None]],
        lambda x: [loss.plain_loss(x, targets)[None]],
        choose.example_inputs(device),
    )
