"""Soft labels of Bertinetto et al. (2020): near classes are right to a degree (SoftLabelsLoss row).

    q(A | C) = exp(-beta d(A, C)) / sum over B of exp(-beta d(B, C)),    A, B terminal classes
    l(i)     = - sum over A of q(A | C) log p(A),                        p = softmax over them

d is the height of the lowest common ancestor over that of the root, and d(A, A) = 0. A large beta
is the leaf cross entropy, beta 0 the uniform distribution.

The sum goes over ancestors, not over pairs: terminal classes that share their lowest ancestor a
with C have one weight w(a), so with S(a) the sum of log p below a, and a running up from C,

    sum over A of exp(-beta d) log p(A) = sum over a of S(a) (w(a) - w(parent(a)))

which costs O(N * C) and no C x C table.

- A label that is not terminal: the mean of q over the terminal classes below it.
- Several terminal labels: the mean of their q. No label: 0, and the row does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError
from hierlearn.losses.leaf_ce import SoftmaxRowLoss

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label
    from hierlearn.losses.loss import Reduction


class SoftLabelsLoss(SoftmaxRowLoss):
    """Cross entropy with labels that are soft along the tree.

    Args:
        hierarchy: the taxonomy, a tree.
        beta: how hard the labels are.
        terminals: inner classes that occur as a most specific label; the leaves always count.
        reduction: "mean" over labeled rows, "sum" or "none".
        validate: check the values of targets at every call.
    """

    rise: Tensor
    itself: Tensor
    total: Tensor
    below: Tensor

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        beta: float = 20.0,
        terminals: Iterable[Label] | None = None,
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(hierarchy, terminals=terminals, reduction=reduction, validate=validate)
        if beta < 0:
            raise HierlearnError(f"beta must not be negative, but is {beta}")
        self.beta = beta
        self.root_weight = float(torch.tensor(-beta, dtype=torch.float64).exp())
        distances = torch.tensor(hierarchy.heights, dtype=torch.float64) / hierarchy.root_height
        near = (-beta * distances).exp()  # w(a)
        # w(a) - w(parent(a)): by how much the weight rises from the parent to a.
        rise = near - self.root_weight
        rise[self.child_ids] = near[self.child_ids] - near[self.parent_ids]
        flags = self.is_terminal.to(torch.float64)
        below = hierarchy.sum_up(flags[None])[0]
        itself = (1 - near) * flags  # a terminal class weighs 1 in its own label, not w
        total = hierarchy.sum_down((below * rise)[None])[0] + self.root_weight * flags.sum()
        for name, values in (
            ("rise", rise),
            ("itself", itself),
            ("total", total + itself),
            ("below", below),
        ):
            self.register_buffer(name, values, persistent=False)

    def row_losses(self, logits: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:  # noqa: ARG002
        """Return the cross entropy with the soft labels."""
        rise, itself, total, below = (
            buffer.to(logits.dtype) for buffer in (self.rise, self.itself, self.total, self.below)
        )
        logs = torch.where(self.is_terminal, self.link.log_masses(logits), 0.0)
        summed = self.hierarchy.sum_up(logs)
        weighted = self.hierarchy.sum_down(summed * rise)
        weighted = weighted + self.root_weight * logs.sum(dim=1, keepdim=True) + itself * logs
        scores = weighted / total  # (N, C) sum over A of q(A | C) log p(A)
        within = self.hierarchy.sum_up(torch.where(self.is_terminal, scores, 0.0)) / below
        return -(labels * torch.where(self.is_terminal, scores, within)).sum(dim=1)
