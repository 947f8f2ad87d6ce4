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

from hierlearn.kernels import rows
from hierlearn.links import SoftmaxLink
from hierlearn.links.masses import log_terminal_masses
from hierlearn.losses.loss import RowLoss, own_shares

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput, Link
    from hierlearn.losses.loss import WeightedOptions


class SoftmaxRowLoss(RowLoss):
    """A loss of rows on the masses of the terminal classes.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    default_link = "softmax"
    reads = "masses"
    takes_fractions = True
    rows_independent = True
    is_zero_elsewhere = True  # a row without a label has no label to weigh
    is_terminal: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        **options: Unpack[WeightedOptions],
    ) -> None:
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
        link = self.link_of(output)
        if isinstance(link, SoftmaxLink) and output.logits is not None:
            found = self.by_kernel(output.float_logits, targets, mask)
            if found is not None:
                return found
        return self.plain_losses(self.log_masses(output), targets, mask)

    def plain_losses(self, log_masses: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return (N,) losses by operations that can be compiled, and differentiated repeatedly."""
        positive = targets.to(log_masses.dtype)
        if mask is not None:
            positive = torch.where(mask, positive, 0.0)
        labels = own_shares(positive, self.sum_of_children(positive))
        counts = labels.sum(dim=1, keepdim=True)
        return self.row_losses(log_masses, labels / counts.clamp_min(1), mask)

    def by_kernel(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor | None:
        """Return (N,) losses by a CPU kernel, if one computes the same as ``row_losses``."""
        if not rows.can_use(logits, targets):
            return None
        layout = self.label_space.layout
        is_own = self.owner_of("kernel") is self.owner_of("row_losses")
        found = self.kernel() if is_own else None
        if layout is None or found is None:
            return None
        kernel, constants = found

        def plain(x: Tensor) -> Tensor:
            return self.plain_losses(self.link.log_masses(x), targets, mask)

        tree = rows.tree_of(layout)
        return rows.row_losses(kernel, logits, targets, mask, (tree, *constants), plain)

    def kernel(self) -> tuple[Any, tuple[Any, ...]] | None:
        """Return the CPU kernel of ``row_losses``, and what it takes after the tree, if any."""
        return None

    def link_of(self, output: HeadOutput) -> Link | None:
        """Return the link through which logits are read; None without any."""
        if output.logits is None or output.link is None:
            return None
        return output.link if output.link.normalized else self.link

    def log_masses(self, output: HeadOutput) -> Tensor:
        """Return (N, C) the log mass of each terminal class."""
        link = self.link_of(output)
        if link is None:
            return log_terminal_masses(output.log_p, self.label_space)
        return link.log_masses(output.float_logits)
