"""Hierarchical cross entropy, HXE, of Bertinetto et al. (2020) (the paper's Hier-CE row).

    l(i) = - sum over the path to the label of exp(-alpha * depth(c)) * log p(c | parent(c))

with p(c | parent) = P(c) / P(parent), P summed from a softmax over the terminal classes, and
P(root) = 1. The depth is the distance from the root, 1 for a top class, as in the authors' code:
a larger alpha cares more for the coarse classes. Their script divides all weights by their sum over
the tree, which only rescales the loss; here alpha 0 is -log P(label), the leaf cross entropy. Read
literally, the paper has the height of c in place of its depth, which weighs the leaves most:
``weighting="height"``. The path of a leaf directly under the root has one step: log P(leaf).

- An inner terminal label: the path ends there.
- Several terminal labels: the mean of their losses. No label: 0, and the row does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.losses.loss import SoftmaxRowLoss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.losses.loss import WeightedOptions

Weighting = Literal["depth", "height"]


def hxe_loss(
    log_masses: Tensor, labels: Tensor, hierarchy: Hierarchy, step_weights: Tensor
) -> Tensor:
    """Return (N,) the weighted steps down the paths to each row's labels; trees.

    Args:
        log_masses: (N, C) the log mass of each terminal class, LOG_ZERO for the others.
        labels: (N, C) the weight of each terminal label; a row sums to 1 or 0.
        hierarchy: the taxonomy, a tree.
        step_weights: (C,) the weight of the step into each class.
    """
    structure = hierarchy.structure
    child = torch.tensor(structure.edge_children, device=log_masses.device)
    parent = torch.tensor(structure.parent_ids, device=log_masses.device)
    return _steps(log_masses, labels, hierarchy, step_weights, (child, parent))


def _steps(
    log_masses: Tensor,
    labels: Tensor,
    hierarchy: Hierarchy,
    step_weights: Tensor,
    edges: tuple[Tensor, Tensor],
) -> Tensor:
    inside = hierarchy.logsumexp_up(log_masses)
    above = inside.index_select(1, edges[1])
    steps = inside.index_add(1, edges[0], above, alpha=-1)  # log p(c | parent)
    share = hierarchy.sum_up(labels)  # how much of the row's label lies at or below c
    return -(share * step_weights.to(steps.dtype) * steps).sum(dim=1)


class HXELoss(SoftmaxRowLoss):
    """Hierarchical cross entropy; trees.

    Args:
        label_space: what can be predicted, or a Hierarchy; a tree.
        alpha: how fast the weights fall; 0 is leaf cross entropy.
        weighting: what they fall with: "depth", the distance from the root, as in the authors'
            code, or "height", the longest way down to a leaf.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(hxe_loss)
    rows_independent = True
    needs_tree = True
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"alpha": (0.1, 0.3, 0.5)}
    step_weights: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        alpha: float = 0.1,
        weighting: Weighting = "depth",
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if alpha < 0:
            raise HierlearnError(f"alpha must not be negative, but is {alpha}")
        if weighting not in get_args(Weighting):
            raise HierlearnError(unknown_name("weighting", str(weighting), get_args(Weighting)))
        self.alpha = alpha
        self.weighting = weighting
        by_depth = weighting == "depth"
        far = self.hierarchy.levels if by_depth else self.hierarchy.heights
        weights = (-alpha * torch.tensor(far, dtype=torch.float64)).exp()
        self.register_buffer("step_weights", weights, persistent=False)
        self._constants = (weights.float().numpy(),)  # of the kernel

    def row_losses(self, log_masses: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        """Return the weighted steps down the path."""
        del mask
        edges = (self.child_ids, self.parent_ids)
        return _steps(log_masses, labels, self.hierarchy, self.step_weights, edges)

    def formula(self) -> tuple[str, tuple[Any, ...]]:
        """Return the name of the kernel, and the weights of steps."""
        return "hxe", self._constants
