"""TrainerLoss: a loss for the ``compute_loss_func`` of Hugging Face's Trainer.

The Trainer adds the losses of the k batches that make one step, and leaves the mean to the
function, which it tells how many labels these batches have together:

    loss of batch i = mean of batch i * n_i / n,    n = n_1 + ... + n_k

A function that ignores n gives a k-fold loss and k-fold gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.hierarchy.nodes import Label
    from hierlearn.losses.loss import Loss

IGNORED = -100  # the label that the Trainer does not count


class TrainerLoss(nn.Module):
    """A loss as ``Trainer(..., compute_loss_func=TrainerLoss(loss))`` calls it.

    Args:
        loss: a loss with reduction "mean".
        class_names: for labels that are (N,) class indices: the class that each stands for. By
            default labels are (N, C) closed multi-hot.

    Example:
        >>> import torch
        >>> from hierlearn import HCLLoss, Hierarchy
        >>> h = Hierarchy.from_paths(["dog/pug", "cat"])
        >>> compute = TrainerLoss(HCLLoss(h), class_names=["cat", "dog/pug"])
        >>> logits, labels = torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])
        >>> halves = [compute((logits[:2],), labels[:2], 4), compute((logits[2:],), labels[2:], 4)]
        >>> bool(sum(halves) == compute((logits,), labels))
        True
    """

    table: Tensor | None

    def __init__(self, loss: Loss, class_names: Sequence[Label] | None = None) -> None:
        super().__init__()
        if loss.reduction != "mean":
            raise HierlearnError(
                f"TrainerLoss needs a loss with reduction 'mean', not {loss.reduction!r}"
            )
        self.loss = loss
        table = None if class_names is None else loss.hierarchy.encode(list(class_names))
        self.register_buffer("table", table, persistent=False)

    def forward(
        self, outputs: Any, labels: Tensor, num_items_in_batch: int | Tensor | None = None
    ) -> Tensor:
        """Return the part of a batch in the loss of a step.

        Args:
            outputs: of the model: ``outputs.logits``, ``outputs["logits"]`` or the first entry is
                (N, C) logits in the hierarchy's order.
            labels: (N, C) closed multi-hot, or (N,) class indices.
            num_items_in_batch: the number of labels of all batches of the step; None for one batch.
        """
        targets = labels
        if self.table is not None:
            if self.table.device != labels.device:
                self.table = self.table.to(labels.device)
            targets = self.table[labels]
        mean: Tensor = self.loss(logits_of(outputs), targets)
        if num_items_in_batch is None:
            return mean
        if isinstance(num_items_in_batch, Tensor):
            num_items_in_batch = num_items_in_batch.to(mean.device)
        return mean * ((labels != IGNORED).sum() / num_items_in_batch)


def logits_of(outputs: Any) -> Tensor:
    """Return the logits among the outputs of a model."""
    if isinstance(outputs, Tensor):
        return outputs
    found = getattr(outputs, "logits", None)
    if found is None:
        found = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    if not isinstance(found, Tensor):
        raise HierlearnError(f"the outputs hold no logits: {type(outputs).__name__}")
    return found
