"""Conditional softmax: a softmax among siblings at every step, as in YOLO9000 (Redmon, 2017).

    p(c | parent) = exp(x_c) / sum over the siblings s of exp(x_s)
    l(i) = - sum over the positive classes c of (1 / positives among its siblings) log p(c | parent)

The children of one parent are siblings, and so are the top classes. A row with one path has one
positive in each group on it, and its loss is the summed cross entropy down the path; below an inner
terminal label there is no loss. Where a row has several paths, the positives of a group share its
weight. An unknown class is left out of its group. On a one-level hierarchy this is cross entropy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hierlearn.hierarchy.propagate import LOG_ZERO
from hierlearn.links.siblings import log_steps, sibling_groups
from hierlearn.losses.loss import RowLoss

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput
    from hierlearn.losses.loss import WeightedOptions


def cond_softmax_loss(
    scores: Tensor, targets: Tensor, groups: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Return (N,) the summed cross entropy of every group of siblings that holds a positive.

    Args:
        scores: (N, C) logits, or log-probabilities: what a group has in common cancels.
        targets: (N, C) closed multi-hot.
        groups: (C,) the number of each class's group of siblings.
        mask: (N, C) bool, which entries are known; an unknown class is left out of its group.
    """
    positive = targets.to(scores.dtype)
    if mask is not None:
        positive = torch.where(mask, positive, 0.0)
        scores = torch.where(mask, scores, LOG_ZERO)
    empty = scores.new_zeros((len(scores), len(groups) + 1))  # one column per group
    counts = empty.index_add(1, groups, positive).index_select(1, groups)
    return -(positive / counts.clamp_min(1) * log_steps(scores, groups)).sum(dim=1)


class CondSoftmaxLoss(RowLoss):
    """Cross entropy among siblings, summed down the path; trees.

    Args:
        label_space: what can be predicted, or a Hierarchy; a tree.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(cond_softmax_loss)
    default_link = "siblings"
    reads = "scores"
    takes_fractions = True
    rows_independent = True
    is_zero_elsewhere = True  # a row without a label has no group to weigh
    needs_tree = True
    groups: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        self.register_buffer("groups", sibling_groups(self.hierarchy), persistent=False)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the cross entropy of the groups of each row."""
        read = output.logits is not None and self.reads_as_scores(output.link)
        scores = output.float_logits if read else output.log_p
        return cond_softmax_loss(scores, targets, self.groups, mask)

    def formula(self) -> tuple[str, tuple[Any, ...]]:
        """Return the name of the kernel."""
        return "cond-softmax", ()
