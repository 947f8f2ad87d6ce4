"""Squared hinge among siblings: a linear SVM of the classes below every parent.

    l(i) = sum over the classes c whose group holds a positive of max(0, margin - s_c x_c)^2

with s_c = 1 for a positive and -1 for its siblings. The children of one parent are siblings, and so
are the top classes; where no sibling is positive, as below the last label, there is no loss. An
unknown class is left out. Divided by the margin, logits are those of an SVM with margin 1 and the
same weight of its penalty; the margin sets how sharp the softmax is that reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hierlearn.errors import HierlearnError
from hierlearn.links.siblings import sibling_groups
from hierlearn.losses.loss import RowLoss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput
    from hierlearn.losses.loss import WeightedOptions


def hinge_loss(
    scores: Tensor,
    targets: Tensor,
    groups: Tensor,
    mask: Tensor | None = None,
    margin: float = 4.0,
) -> Tensor:
    """Return (N,) the squared hinge of every class in a group of siblings that holds a positive.

    Args:
        scores: (N, C) logits.
        targets: (N, C) closed multi-hot.
        groups: (C,) the number of each class's group of siblings.
        mask: (N, C) bool, which entries are known.
        margin: what the logit of a positive, and minus that of a negative, should reach.
    """
    positive = targets.to(scores.dtype)
    if mask is not None:
        positive = torch.where(mask, positive, 0.0)
    empty = scores.new_zeros((len(scores), len(groups) + 1))  # one column per group
    counts = empty.index_add(1, groups, positive).index_select(1, groups)
    counted = counts > 0 if mask is None else (counts > 0) & mask
    short = (margin - (2 * positive - 1) * scores).clamp_min(0)
    return torch.where(counted, short.square(), 0.0).sum(dim=1)


class HingeLoss(RowLoss):
    """Squared hinge among siblings, summed down the path; trees.

    Args:
        label_space: what can be predicted, or a Hierarchy; a tree.
        margin: what the logit of a positive, and minus that of a negative, should reach.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(hinge_loss)
    reading_link = "siblings"
    reads = "scores"
    rows_independent = True
    is_zero_elsewhere = True  # a row without a label has no group that counts
    needs_tree = True
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"margin": (2.0, 4.0, 8.0)}
    groups: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        margin: float = 4.0,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if not 0 < margin < float("inf"):
            raise HierlearnError(f"margin must be a number above 0, not {margin}")
        self.margin = float(margin)
        self.register_buffer("groups", sibling_groups(self.hierarchy), persistent=False)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the squared hinge of the groups of each row."""
        # Whatever a group has in common counts here, which a softmax among siblings would lose.
        read = output.logits is not None and self.reads_as_scores(output.link)
        scores = output.float_logits if read else output.log_p - output.log_not_p
        return hinge_loss(scores, targets, self.groups, mask, self.margin)
