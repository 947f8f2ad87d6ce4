"""timm: a loss of (logits, targets), as the training loops of timm call one.

    mixup and cutmix    targets are (N, K) floats: row n is class i to the part w, class j to 1 - w

The loss of such a row is w times the loss of class i plus 1 - w times that of class j. It is
computed as two rows with these weights, which is right also for losses that are not linear in the
targets, and for HCL, where a row counts by its weight. SampleCurriculumLoss, which selects rows
whatever they weigh, selects among both rows of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from hierlearn.backbones.compiled import declare_operators
from hierlearn.errors import HierlearnError
from hierlearn.integrations.labels import LabelReader
from hierlearn.losses.checks import can_check_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.hierarchy.nodes import Label
    from hierlearn.losses import Loss

declare_operators()  # for timm, wherever it is imported after this
ROUNDING = 1e-2  # of summed weights, also in half precision


class TimmLoss(nn.Module):
    """A loss as timm calls it: ``criterion(model(images), targets)``.

    Args:
        loss: a loss with reduction "mean".
        class_names: the class that each class index stands for, such as the folders of the images
            in sorted order.

    Example:
        >>> import torch
        >>> from hierlearn import Hierarchy
        >>> from hierlearn.losses import HXELoss
        >>> h = Hierarchy.from_paths(["dog/pug", "cat"])
        >>> criterion = TimmLoss(HXELoss(h), class_names=["cat", "pug"])
        >>> criterion(torch.zeros(2, len(h)), torch.tensor([0, 1])).shape
        torch.Size([])
    """

    def __init__(self, loss: Loss, class_names: Sequence[Label]) -> None:
        super().__init__()
        if loss.reduction != "mean":
            raise HierlearnError(
                f"TimmLoss needs a loss with reduction 'mean', not {loss.reduction!r}"
            )
        self.loss = loss
        self.reader = LabelReader(loss.label_space, class_names)
        self.count = len(class_names)
        self._checked = False

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            logits: (N, C) in the hierarchy's order.
            targets: (N,) class indices; (N, K) floats of mixup or cutmix without label smoothing;
                or (N, C) closed targets of dtype bool.
        """
        value: Tensor
        if targets.is_floating_point():
            value = self.mixed(logits, targets)
        else:
            value = self.loss(logits, *self.reader(targets))
        return value

    def mixed(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of targets that are two classes each."""
        if targets.dim() != 2 or targets.shape[1] < self.count:
            raise HierlearnError(
                f"targets {tuple(targets.shape)} of mixup must be (N, K) with K of at least "
                f"{self.count}, the number of class names; pass num_classes={self.count} to Mixup"
            )
        weights, indices = targets.topk(min(2, targets.shape[1]), dim=1)  # (N, 2)
        if not self._checked and can_check_values(targets):
            self.check(weights, indices)
            self._checked = True
        # Of a row that is not mixed the second class is any, with weight 0.
        indices = indices.clamp_max(self.count - 1)
        rows, _ = self.reader.from_indices(
            indices.T.flatten()
        )  # all first classes, then all second
        repeated = logits.repeat(weights.shape[1], 1)
        value: Tensor = self.loss(repeated, rows, weight=weights.T.flatten().to(logits.dtype))
        return value

    def check(self, weights: Tensor, indices: Tensor) -> None:
        """Raise on targets that are not two classes each; done for the first batch only."""
        if bool(((weights.sum(dim=1) - 1).abs() > ROUNDING).any()):
            raise HierlearnError(
                "targets are smoothed over all classes alike, which contradicts the taxonomy; pass "
                "label_smoothing=0 to Mixup (--smoothing 0), and SoftLabelsLoss to smooth along "
                "the tree"
            )
        if bool(((indices >= self.count) & (weights > 0)).any()):
            raise HierlearnError(
                f"targets name class index {int(indices[weights > 0].max())}, but there are "
                f"{self.count} class names"
            )
