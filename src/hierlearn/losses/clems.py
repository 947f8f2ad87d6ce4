"""The loss of CLEMS: the squared distance of an embedding to the point of the true label set.

    l(i) = |z_i - t(y_i)|^2

Huang and Lin, "Cost-sensitive label embedding for multi-label classification" (2017); the head
``clems`` has the points. Of any other output the point of a label set is the set itself, and z the
probabilities of the classes: l(i) = sum over j of (p_ij - y_ij)^2, the Brier score. These points
embed the Hamming cost without any stress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hierlearn.errors import HierlearnError
from hierlearn.links.label_points import EmbeddedOutput
from hierlearn.losses.loss import Loss

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.links import HeadOutput


def clems_loss(embeddings: Tensor, points: Tensor) -> Tensor:
    """Return (N,) squared distances of (N, D) embeddings to the points of their label sets."""
    return (embeddings - points).square().sum(dim=-1)


class CLEMSLoss(Loss):
    """The squared distance to the point of the true label set.

    Rows without a label count: the empty set has a point, too. A row whose set has none, which
    only rows outside of the training rows can be, costs nothing.

    Args:
        label_space: what can be predicted, or a Hierarchy; tree or DAG.
        options: ``link``, ``reduction`` and ``validate``.
    """

    function: ClassVar[Any] = staticmethod(clems_loss)
    uses_hierarchy = True
    rows_independent = True

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return (N,) squared distances."""
        if not isinstance(output, EmbeddedOutput):
            p = output.probabilities
            points = targets.to(p.dtype)
            return clems_loss(p, points if mask is None else torch.where(mask, points, p))
        if mask is not None:
            raise HierlearnError(
                "the points of the head clems are those of whole label sets, but a mask leaves "
                "classes unknown; use unlabeled_descendants 'negative', or another head"
            )
        if not output.points.is_set:
            raise HierlearnError(
                "the label sets of this head clems have no points yet, so nothing would be "
                "learned; name the head clems, which gives them points, or call fit_label_points"
            )
        points, known = output.points.truth_of(targets)
        values = clems_loss(output.embeddings, points.to(output.embeddings.dtype))
        return torch.where(known, values, 0.0)

    def counted(self, targets: Tensor, mask: Tensor | None) -> Tensor | None:
        """Every row counts of which something is known."""
        del targets
        return None if mask is None else mask.any(dim=-1)

    def size(self, targets: Tensor) -> int:
        """Return the number of rows."""
        return targets.shape[-2]
