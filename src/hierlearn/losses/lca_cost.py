"""Expected hierarchical cost: how high is the lowest common ancestor, on average?

    l(i) = sum over terminal classes A of p(A) d(A, C),    p = softmax over the terminal classes

d is the height of the lowest common ancestor of A and the label C over that of the root, and
d(C, C) = 0: the cost of Deng et al. (2010) and Verma et al. (2012), in expectation. Summed over the
ancestors a of C, as in soft labels, with P(a) the mass at or below a and h the scaled height:

    l(i) = 1 + sum over a of P(a) (h(a) - h(parent(a))) - h(C) p(C),    h(root) = 1

- A label that is not terminal costs its own height where the mass lies below it.
- Several terminal labels: the mean of their costs. No label: 0, and the row does not count.

Alone it is a weak teacher, flat where the network is sure of something wrong; add cross entropy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.losses.leaf_ce import SoftmaxRowLoss

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label
    from hierlearn.losses.loss import Reduction


class LCACostLoss(SoftmaxRowLoss):
    """Expected height of the lowest common ancestor under the softmax link; trees.

    Args:
        hierarchy: the taxonomy, a tree.
        terminals: inner classes that occur as a most specific label; the leaves always count.
        reduction: "mean" over labeled rows, "sum" or "none".
        validate: check the values of targets at every call.
    """

    rise: Tensor
    itself: Tensor

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        terminals: Iterable[Label] | None = None,
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(hierarchy, terminals=terminals, reduction=reduction, validate=validate)
        heights = torch.tensor(hierarchy.heights, dtype=torch.float64) / hierarchy.root_height
        rise = heights - 1
        rise[self.child_ids] = heights[self.child_ids] - heights[self.parent_ids]
        self.register_buffer("rise", rise, persistent=False)
        self.register_buffer("itself", heights * self.is_terminal, persistent=False)

    def row_losses(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return the expected cost of each row's labels."""
        rise, itself = (buffer.to(logits.dtype) for buffer in (self.rise, self.itself))
        own = self.link.log_masses(logits).exp()
        costs = 1 + self.hierarchy.sum_down(self.hierarchy.sum_up(own) * rise) - itself * own
        return (labels * costs).sum(dim=1)
