"""Expected hierarchical cost: how high is the lowest common ancestor, on average?

    l(i) = sum over terminal classes A of p(A) d(A, C),    p = softmax over the terminal classes

d is the height of the lowest common ancestor of A and the label C over that of the root, and
d(C, C) = 0: the cost of Deng et al. (2010) and Verma et al. (2012), in expectation. Summed over the
ancestors a of C, as in soft labels, with P(a) the mass at or below a and h the scaled height:

    l(i) = 1 + sum over a of P(a) (h(a) - h(parent(a))) - h(C) p(C),    h(root) = 1

- A label that is not terminal costs its own height where the mass lies below it.
- Several terminal labels: the mean of their costs. No label: 0, and the row does not count.

Alone it trains poorly: its gradient vanishes where the network is sure of a wrong class. Add cross
entropy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hierlearn.losses.loss import SoftmaxRowLoss

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.losses.loss import WeightedOptions


def lca_cost_loss(
    log_masses: Tensor, labels: Tensor, hierarchy: Hierarchy, rise: Tensor, itself: Tensor
) -> Tensor:
    """Return (N,) the expected cost of each row's labels; trees.

    Args:
        log_masses: (N, C) the log mass of each terminal class, LOG_ZERO for the others.
        labels: (N, C) the weight of each terminal label; a row sums to 1 or 0.
        hierarchy: the taxonomy, a tree.
        rise: (C,) h(a) - h(parent(a)), heights over that of the root.
        itself: (C,) h(a) of each terminal class, 0 for the others.
    """
    own = log_masses.exp()
    rise, itself = rise.to(own.dtype), itself.to(own.dtype)
    costs = 1 + hierarchy.sum_down(hierarchy.sum_up(own) * rise) - itself * own
    return (labels * costs).sum(dim=1)


class LCACostLoss(SoftmaxRowLoss):
    """Expected height of the lowest common ancestor under the softmax link; trees.

    Args:
        label_space: what can be predicted, or a Hierarchy; a tree.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(lca_cost_loss)
    rows_independent = True
    needs_tree = True
    rise: Tensor
    itself: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        heights = torch.tensor(self.hierarchy.heights, dtype=torch.float64)
        heights = heights / self.hierarchy.root_height
        rise = heights - 1
        rise[self.child_ids] = heights[self.child_ids] - heights[self.parent_ids]
        self.register_buffer("rise", rise, persistent=False)
        self.register_buffer("itself", heights * self.is_terminal, persistent=False)

    def row_losses(self, log_masses: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return the expected cost of each row's labels."""
        del mask
        return lca_cost_loss(log_masses, labels, self.hierarchy, self.rise, self.itself)
