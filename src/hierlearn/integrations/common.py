"""What the integrations share: labels as other libraries batch them, and the state of a curriculum.

    IGNORED   -100: does not count. As a class index it is a row without any known label.
    UNKNOWN   -1: an unknown entry of a row that counts as a whole

Both are marks of what is unknown, in place of a mask, for which loaders have no room. Labels are
class indices, or (N, C) rows. Checkpoints keep the state of a curriculum, and evaluating must not
change it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.losses.indices import IndexTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.hierarchy.names import Label
    from hierlearn.losses import Loss

IGNORED = -100  # what torch and transformers do not count
UNKNOWN = -1


class LabelReader(nn.Module):
    """Turn labels into targets and a mask.

    Args:
        label_space: what can be predicted.
        class_names: for labels that are (N,) class indices: the class that each stands for.
    """

    def __init__(self, label_space: LabelSpace, class_names: Sequence[Label] | None) -> None:
        super().__init__()
        self.classes = len(label_space)
        self.table = None if class_names is None else IndexTable(label_space, class_names)

    def forward(self, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return (N, C) closed targets, and which of them are known; None for all.

        Args:
            labels: (N,) class indices, IGNORED where there is none; or (N, C) closed targets, bool,
                or numbers that are negative where an entry is unknown.
        """
        if labels.dim() == 1:
            return self.from_indices(labels)
        if labels.dim() != 2 or labels.shape[1] != self.classes:
            raise HierlearnError(
                f"labels {tuple(labels.shape)} must be (N,) class indices or "
                f"(N, {self.classes}) targets"
            )
        if labels.dtype == torch.bool:
            return labels, None
        known = labels >= 0
        return labels.clamp_min(0) if labels.is_floating_point() else labels > 0, known

    def from_indices(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the targets of class indices, and a mask of the rows that have one."""
        if self.table is None:
            raise HierlearnError(
                f"labels {tuple(labels.shape)} are class indices; pass class_names, the class that "
                f"each index stands for, in order"
            )
        known = labels != IGNORED
        targets = self.table(labels.masked_fill(~known, 0))
        mask = known[:, None].expand_as(targets).contiguous()
        return targets & mask, mask


# ---------------------------------------- curricula


def curriculum_state(loss: Loss) -> dict[str, Tensor]:
    """Return copies of the state of a loss."""
    return {name: value.detach().clone() for name, value in loss.state_dict().items()}


def load_curriculum_state(loss: Loss, state: Mapping[str, Tensor]) -> None:
    """Restore what ``curriculum_state`` returned.

    Raises:
        HierlearnError: where the state is that of another loss or another hierarchy.
    """
    own = {name: tuple(value.shape) for name, value in curriculum_state(loss).items()}
    given = {name: tuple(value.shape) for name, value in state.items()}
    if own != given:
        raise HierlearnError(
            f"the checkpoint holds {given or 'no state'} of a curriculum, but this "
            f"{type(loss).__name__} has {own or 'no state'}; resume with the loss and the "
            f"hierarchy of the checkpoint"
        )
    loss.load_state_dict(state)


@contextmanager
def unchanged(loss: Loss) -> Iterator[None]:
    """Leave the state of a curriculum as it is: the rows of an evaluation are not of the epoch."""
    state = curriculum_state(loss)
    try:
        yield
    finally:
        load_curriculum_state(loss, state)
