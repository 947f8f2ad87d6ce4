"""The example-based curriculum loss of Lyu and Tsang (2020), which HCL takes to classes.

    min over v in {0, 1}^N of max(sum_i v_i l_i, N - sum_i v_i + e)

with l_i the summed bce of row i and e the 0-1 errors: HCL's selection with rows and classes
exchanged and without the constraint. Rows that are too hard for now are left out of the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError
from hierlearn.losses.bases import zero_one
from hierlearn.losses.bce import BCELoss
from hierlearn.losses.hcl.curriculum import select_classes

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import Link
    from hierlearn.losses.loss import Reduction


class SampleCurriculumLoss(BCELoss):
    """Cross entropy over the rows of a batch that the curriculum selects.

    Under torch.distributed every process selects among its own rows.

    Args:
        hierarchy: the taxonomy.
        floor: what an unselected row keeps, in [0, 1).
        link: a name of LINKS or a Link.
        reduction: "mean" over known entries, "sum" or "none".
        validate: check the values of targets at every call.
    """

    per_row = False

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        floor: float = 0.0,
        link: str | Link = "sigmoid",
        reduction: Reduction = "mean",
        validate: bool = False,
    ) -> None:
        super().__init__(hierarchy, link=link, reduction=reduction, validate=validate)
        if not 0 <= floor < 1:
            raise HierlearnError(f"floor must lie in [0, 1), not {floor}; 1 would select every row")
        self.floor = floor

    def losses(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return bce times the weight of its row."""
        losses = super().losses(logits, targets, mask)
        with torch.no_grad():
            log_p, log_not_p = self.link(logits)
            errors = zero_one(log_p, log_not_p, targets)
            if mask is not None:
                errors = torch.where(mask, errors, 0.0)
            known = losses if mask is None else torch.where(mask, losses, 0.0)
            chosen = select_classes(known.sum(dim=1), len(losses) + errors.sum())
            weights = chosen.to(losses.dtype).mul_(1 - self.floor).add_(self.floor)
        return losses * weights[:, None]
