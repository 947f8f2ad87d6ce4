"""The ranking loss of DeViSE: the similarity to the label exceeds that to other classes.

    l(i) = sum over labels y, sum over other terminal classes j of max(0, margin - s_y + s_j)

Frome et al., "DeViSE: a deep visual-semantic embedding model" (2013), with margin 0.1; s are the
similarities of a row to the vectors of the terminal classes, the logits of the head ``devise``.

- Several labels: the sum over them; none is another's negative. A row without a label: 0, and it
  does not count.
- A class that is unknown (mask) is no negative.
- A label that is not terminal, or whose children are unknown: the most similar class at or below it
  counts as the label, and nothing below it is a negative.

The sums over pairs are computed by sorting, in O(C log C) per row: a pair costs where the label,
less the margin, comes after the negative, and then its cost is linear in the two.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.propagate import LOG_ZERO
from hierlearn.links.masses import log_terminal_masses
from hierlearn.links.scaled_softmax import ScaledSoftmaxLink
from hierlearn.losses.loss import RowLoss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput
    from hierlearn.losses.loss import WeightedOptions

MARGIN = 0.1  # of the paper


def pairwise_hinge(
    scores: Tensor, positive: Tensor, negative: Tensor, margin: float = MARGIN
) -> Tensor:
    """Return (N,) the sum over positives y and negatives j of w_y max(0, margin - s_y + s_j).

    Args:
        scores: (N, C) s.
        positive: (N, C) w, the weight of each positive, 0 for other entries.
        negative: (N, C) bool; no entry is both.
        margin: by which a positive should exceed a negative.
    """
    keys = torch.where(negative, scores, scores - margin)
    with torch.no_grad():  # the loss is linear in the scores as long as their order stays
        order = keys.argsort(dim=-1, descending=True)
        weights, others = (one.to(scores.dtype).gather(-1, order) for one in (positive, negative))
        before = others.cumsum(dim=-1)  # negatives that come before, and exceed
        after = weights.sum(dim=-1, keepdim=True) - weights.cumsum(dim=-1)
        found = others * after - weights * before
        slopes = torch.zeros_like(scores).scatter(-1, order, found)
    return (slopes * keys).sum(dim=-1)


def devise_loss(
    scores: Tensor,
    labels: Tensor,
    negative: Tensor,
    hierarchy: Hierarchy,
    is_exact: Tensor,
    margin: float = MARGIN,
) -> Tensor:
    """Return (N,) the ranking loss.

    Args:
        scores: (N, C) the similarity to each terminal class, LOG_ZERO for the others.
        labels: (N, C) the most specific labels, with weights.
        negative: (N, C) bool, the terminal classes that are known not to apply.
        hierarchy: the taxonomy.
        is_exact: (N, C) or (C,) bool, where only the class itself fits, not what lies below.
        margin: by which the label should exceed a negative.
    """
    inexact = labels * ~is_exact
    fits = torch.where(inexact > 0, hierarchy.max_up(scores), scores)
    negative = negative & (hierarchy.sum_down(inexact) == 0)
    used = (labels > 0) | negative  # others are 0, since 0 times LOG_ZERO would not be exact
    return pairwise_hinge(torch.where(used, fits, 0.0), labels, negative, margin)


class DeViSELoss(RowLoss):
    """The sum of hinges between labels and other terminal classes; trees and DAGs.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        margin: by which the similarity to the label should exceed others, above 0.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(devise_loss)
    default_link = "scaled-softmax"
    reads = "scores"
    uses_hierarchy = False
    rows_independent = True
    is_zero_elsewhere = True  # a row without a label has no pair
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"margin": (0.1, 0.3)}
    is_terminal: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        margin: float = MARGIN,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if not 0 < margin < math.inf:
            raise HierlearnError(f"margin must be a number above 0, not {margin!r}")
        self.margin = float(margin)
        flags = torch.from_numpy(self.label_space.is_terminal.copy())
        self.register_buffer("is_terminal", flags, persistent=False)

    def scores(self, output: HeadOutput) -> Tensor:
        """Return (N, C) the logits, or what they are up to a constant of the row."""
        if output.logits is not None and self.reads_as_scores(output.link):
            return output.float_logits
        scale = self.link.temperature if isinstance(self.link, ScaledSoftmaxLink) else 1.0
        return scale * log_terminal_masses(output.log_p, self.label_space)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the summed hinges of each row."""
        scores = torch.where(self.is_terminal, self.scores(output), LOG_ZERO)
        positive = targets.to(scores.dtype)
        negative, exact = (targets == 0) & self.is_terminal, self.is_terminal
        if mask is not None:
            positive, negative = torch.where(mask, positive, 0.0), negative & mask
            exact = exact & (self.sum_of_children((~mask).to(scores.dtype)) == 0)
        labels = positive * (self.sum_of_children(positive) == 0)
        return devise_loss(scores, labels, negative, self.hierarchy, exact, self.margin)
