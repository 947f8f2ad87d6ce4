"""Soft labels of Bertinetto et al. (2020): near classes are right to a degree (the SoftLabels row).

    q(A | C) = exp(-beta d(A, C)) / sum over B of exp(-beta d(B, C)),    A, B terminal classes
    l(i)     = - sum over A of q(A | C) log p(A),                        p = softmax over them

d is the height of the lowest common ancestor over the largest of these between two terminal
classes, which below a single top class is not that of the root, and d(A, A) = 0. A large beta is
the leaf cross entropy, beta 0 the uniform distribution.

The sum goes over ancestors, not over pairs: terminal classes that share their lowest ancestor a
with C have one weight w(a), so with S(a) the sum of log p below a, and a running up from C,

    sum over A of exp(-beta d) log p(A) = sum over a of S(a) (w(a) - w(parent(a)))

which costs O(N * C) and no C x C table.

- A label that is not terminal: the mean of q over the terminal classes below it.
- Several terminal labels: the mean of their q. No label: 0, and the row does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from hierlearn.errors import HierlearnError
from hierlearn.losses.loss import SoftmaxRowLoss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.losses.loss import WeightedOptions


class SoftWeights(NamedTuple):
    """The weights of a label space for one beta, (C,) each.

    Attributes:
        rise: w(a) - w(parent(a)), by how much the weight rises from the parent to a.
        itself: 1 - w(a) of a terminal class, which weighs 1 in its own label; 0 for the others.
        total: the sum of the weights of all terminal classes, for each label.
        below: how many terminal classes lie at or below each class.
        root: w(root), as a tensor of one number.
    """

    rise: Tensor
    itself: Tensor
    total: Tensor
    below: Tensor
    root: Tensor


def largest_height(label_space: LabelSpace) -> int:
    """Return the largest height of a lowest common ancestor of two terminal classes; trees.

    It is that of the lowest class, or the root, that has all terminal classes at or below it.
    """
    hierarchy = label_space.hierarchy
    height, below = hierarchy.root_height, [int(c) for c in (hierarchy.levels == 1).nonzero()[0]]
    while len(below) == 1:
        height = int(hierarchy.heights[below[0]])
        if label_space.is_terminal[below[0]]:
            break
        below = list(hierarchy.children(below[0]))
    return height


def soft_weights(label_space: LabelSpace, beta: float) -> SoftWeights:
    """Return the weights exp(-beta d) along the hierarchy, in float64."""
    hierarchy = label_space.hierarchy
    largest = max(largest_height(label_space), 1)  # 0 of one terminal class, which has no pair
    root = torch.tensor(-beta * hierarchy.root_height / largest, dtype=torch.float64).exp()
    distances = torch.tensor(hierarchy.heights, dtype=torch.float64) / largest
    near = (-beta * distances).exp()  # w(a)
    rise = near - root
    child = torch.tensor(hierarchy.structure.edge_children)
    parent = torch.tensor(hierarchy.structure.parent_ids)
    rise[child] = near[child] - near[parent]
    flags = torch.from_numpy(label_space.is_terminal.copy()).to(torch.float64)
    below = hierarchy.sum_up(flags[None])[0]
    itself = (1 - near) * flags
    total = hierarchy.sum_down((below * rise)[None])[0] + root * flags.sum() + itself
    return SoftWeights(rise, itself, total, below, root)


def soft_labels_loss(
    log_masses: Tensor,
    labels: Tensor,
    hierarchy: Hierarchy,
    is_terminal: Tensor,
    weights: SoftWeights,
) -> Tensor:
    """Return (N,) the cross entropy with the soft labels; trees.

    Args:
        log_masses: (N, C) the log mass of each terminal class, LOG_ZERO for the others.
        labels: (N, C) the weight of each terminal label; a row sums to 1 or 0.
        hierarchy: the taxonomy, a tree.
        is_terminal: (C,) bool.
        weights: what ``soft_weights`` returns.
    """
    rise, itself, total, below, root = (one.to(log_masses.dtype) for one in weights)
    logs = torch.where(is_terminal, log_masses, 0.0)
    weighted = hierarchy.sum_down(hierarchy.sum_up(logs) * rise)
    weighted = weighted + root * logs.sum(dim=1, keepdim=True) + itself * logs
    scores = weighted / total  # (N, C) sum over A of q(A | C) log p(A)
    within = hierarchy.sum_up(torch.where(is_terminal, scores, 0.0)) / below
    return -(labels * torch.where(is_terminal, scores, within)).sum(dim=1)


class SoftLabelsLoss(SoftmaxRowLoss):
    """Cross entropy with labels that are soft along the tree.

    Args:
        label_space: what can be predicted, or a Hierarchy; a tree.
        beta: how hard the labels are.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(soft_labels_loss)
    rows_independent = True
    needs_tree = True
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"beta": (5.0, 10.0, 20.0)}

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        beta: float = 20.0,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if beta < 0:
            raise HierlearnError(f"beta must not be negative, but is {beta}")
        self.beta = beta
        weights = soft_weights(self.label_space, beta)
        for name, values in weights._asdict().items():
            self.register_buffer(name, values, persistent=False)
        *arrays, root = weights
        self._constants = (*(one.float().numpy() for one in arrays), float(root))  # of the kernel

    def row_losses(self, log_masses: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return the cross entropy with the soft labels."""
        del mask
        weights = SoftWeights(*(self.get_buffer(name) for name in SoftWeights._fields))
        return soft_labels_loss(log_masses, labels, self.hierarchy, self.is_terminal, weights)

    def formula(self) -> tuple[str, tuple[Any, ...]]:
        """Return the name of the kernel, and the weights along the hierarchy."""
        return "soft-labels", self._constants
