"""SoftmaxRowLoss: what the row losses on terminal masses have in common.

    q = softmax(x over the terminal classes)

Plain logits, and a head whose link is not normalized, are read through the softmax link. Any other
head is used as it is: the masses of the terminal classes are computed from its log-probabilities.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hierlearn.links.masses import log_terminal_masses
from hierlearn.losses.loss import RowLoss

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput


class SoftmaxRowLoss(RowLoss):
    """A loss of rows on the masses of the terminal classes.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    default_link = "softmax"
    rows_independent = True
    is_zero_elsewhere = True  # a row without a label has no label to weigh
    is_terminal: Tensor

    def __init__(self, label_space: LabelSpace | Hierarchy, **options: Any) -> None:
        super().__init__(label_space, **options)
        flags = torch.from_numpy(self.label_space.is_terminal.copy())
        self.register_buffer("is_terminal", flags, persistent=False)

    @abstractmethod
    def row_losses(self, log_masses: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return (N,) losses.

        Args:
            log_masses: (N, C) the log mass of each terminal class, LOG_ZERO for the others.
            labels: (N, C) the terminal labels; a row of them sums to 1 or 0.
            mask: (N, C) which targets are known.
        """

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Share each row's weight among its terminal labels."""
        log_masses = self.log_masses(output)
        positive = targets.to(log_masses.dtype)
        if mask is not None:
            positive = torch.where(mask, positive, 0.0)
        terminal = positive * (self.sum_of_children(positive) == 0)
        counts = terminal.sum(dim=1, keepdim=True)
        return self.row_losses(log_masses, terminal / counts.clamp_min(1), mask)

    def log_masses(self, output: HeadOutput) -> Tensor:
        """Return (N, C) the log mass of each terminal class."""
        if output.logits is None or output.link is None:
            return log_terminal_masses(output.log_p, self.label_space)
        link = output.link if output.link.normalized else self.link
        return link.log_masses(output.float_logits)
