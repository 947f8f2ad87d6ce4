"""The loss of HMCN: cross entropy, and a penalty on classes more probable than their parents.

    l(i, j) = bce(i, j) + lambda * sum over parents k of j of max(0, p_j - p_k)^2

Wehrmann, Cerri and Barros (2018), with lambda = 0.1. They apply the penalty to the answer, the mean
of two outputs; here each output has its own, which is at least as large, since the penalty is
convex.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.propagate import add_at, select
from hierlearn.losses.bases import bce_loss
from hierlearn.losses.bce import BCELoss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput
    from hierlearn.losses.bce import BCEOptions


def violations(p: Tensor, children: Tensor, parents: Tensor) -> Tensor:
    """Return (N, C), for each class, the summed squares by which p exceeds that of its parents.

    Args:
        p: (N, C) probabilities.
        children: (E,) the lower end of every edge of the taxonomy.
        parents: (E,) the upper ends.
    """
    excess = (select(p, children) - select(p, parents)).clamp_min(0.0)
    return add_at(torch.zeros_like(p), children, excess.square())


def hmcn_loss(
    log_p: Tensor,
    log_not_p: Tensor,
    targets: Tensor,
    edges: tuple[Tensor, Tensor],
    penalty: float = 0.1,
) -> Tensor:
    """Return (N, C) bce with the penalty; edges are those of the taxonomy, lower ends first."""
    losses = bce_loss(log_p, log_not_p, targets)
    return losses + penalty * violations(log_p.exp(), *edges)


class HMCNLoss(BCELoss):
    """Cross entropy with a penalty on incoherent probabilities.

    Args:
        label_space: what can be predicted, or a Hierarchy; tree or DAG.
        penalty: lambda, at least 0.
        options: ``link``, ``log_base``, ``reduction`` and ``validate``.
    """

    function: ClassVar[Any] = staticmethod(hmcn_loss)
    uses_hierarchy = True
    rows_independent = True
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"penalty": (0.1, 1.0)}
    child_ids: Tensor
    parent_ids: Tensor

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        penalty: float = 0.1,
        **options: Unpack[BCEOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if not penalty >= 0:
            raise HierlearnError(f"penalty must be at least 0, not {penalty!r}")
        self.penalty = penalty
        structure = self.hierarchy.structure
        children, parents = structure.edge_children, structure.parent_ids
        self.register_buffer("child_ids", torch.tensor(children), persistent=False)
        self.register_buffer("parent_ids", torch.tensor(parents), persistent=False)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return bce with the penalty."""
        losses = super().losses(output, targets, mask)
        p = output.probabilities.to(losses.dtype)
        return losses + self.penalty * violations(p, self.child_ids, self.parent_ids)

    def kernel_sums(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> None:
        """Return None: there is no kernel."""
        del output, targets, mask
