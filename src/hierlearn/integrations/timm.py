"""timm: a loss of (logits, targets), as the training loops of timm call one.

    mixup and cutmix    targets are (N, K) floats: row n is class i to the part w, class j to 1 - w

The loss of such a row is w times the loss of class i plus 1 - w times that of class j. A loss that
is linear in the targets takes the mixture of both as they are, of any number of classes, and so
label smoothing. For others it is computed as two rows with these weights, as for HCL, where a row
counts by its weight. SampleCurriculumLoss, which selects rows whatever they weigh, selects among
both rows of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from torch import Tensor, nn

from hierlearn.backbones.torchvision import broken_torchvision
from hierlearn.errors import HierlearnError
from hierlearn.integrations.common import LabelReader
from hierlearn.losses.checks import can_check_values
from hierlearn.losses.loss import losses_of_fractions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.hierarchy.names import Label
    from hierlearn.losses import Loss

broken_torchvision()  # for timm, wherever it is imported after this
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
            targets: (N,) class indices; (N, K) floats of mixup, cutmix or label smoothing, the last
                for losses that are linear in the targets; or (N, C) closed targets of dtype bool.
        """
        value: Tensor
        if targets.is_floating_point():
            value = self.mixed(logits, targets)
        else:
            value = self.loss(logits, *self.reader(targets))
        return value

    def mixed(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of targets that are mixtures of classes."""
        if targets.dim() != 2 or targets.shape[1] < self.count:
            raise HierlearnError(
                f"targets {tuple(targets.shape)} of mixup must be (N, K) with K of at least "
                f"{self.count}, the number of class names; pass num_classes={self.count} to Mixup"
            )
        table = self.reader.table
        if self.loss.mixes_classes() and table is not None:
            if not self._checked and can_check_values(targets):
                self.check_mixtures(targets)
                self._checked = True
            mixed: Tensor = self.loss(logits, table.mixtures(targets[:, : self.count]))
            return mixed
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

    def check_mixtures(self, targets: Tensor) -> None:
        """Raise on targets that do not sum to 1 over the classes; for the first batch only."""
        if bool((targets[:, self.count :] > 0).any()):
            self.refuse_index(int((targets > 0).nonzero()[:, 1].max()))
        if bool(((targets.sum(dim=1) - 1).abs() > ROUNDING).any()):
            raise HierlearnError("targets of mixup or label smoothing must sum to 1 in every row")

    def refuse_index(self, index: int) -> NoReturn:
        """Raise for a class index that has no class name."""
        raise HierlearnError(
            f"targets name class index {index}, but there are {self.count} class names"
        )

    def check(self, weights: Tensor, indices: Tensor) -> None:
        """Raise on targets that are not two classes each; done for the first batch only."""
        if bool(((weights.sum(dim=1) - 1).abs() > ROUNDING).any()):
            raise HierlearnError(
                f"targets are smoothed over more classes than two, which "
                f"{type(self.loss).__name__} cannot take, since it is not linear in the targets; "
                f"pass label_smoothing=0 to Mixup (--smoothing 0), or use "
                f"{', '.join(losses_of_fractions())}"
            )
        if bool(((indices >= self.count) & (weights > 0)).any()):
            self.refuse_index(int(indices[weights > 0].max()))
