"""The example-based curriculum loss of Lyu and Tsang (2020), which HCL takes to classes.

    min over v in {0, 1}^N of max(sum_i v_i l_i, N - sum_i v_i + e)

with l_i the summed bce of row i and e the 0-1 errors: HCL's selection with rows and classes
exchanged and without the constraint. Rows that are too hard for now are left out of the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from hierlearn.errors import HierlearnError
from hierlearn.losses.bases import zero_one
from hierlearn.losses.bce import BCELoss
from hierlearn.losses.hcl.functional import select_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput
    from hierlearn.losses.bce import BCEOptions


@torch.no_grad()
def select_rows(losses: Tensor, errors: Tensor, floor: float = 0.0) -> Tensor:
    """Return (N,) what each row weighs: 1 where it is selected, else the floor.

    Args:
        losses: (N, C) or (M, N, C), 0 where an entry is unknown.
        errors: the 0-1 errors, of the same shape.
        floor: what an unselected row keeps.
    """
    limit = losses.shape[-2] + errors.sum(dim=(-2, -1))
    chosen = select_classes(losses.sum(dim=-1), limit)
    return chosen.to(losses.dtype) * (1 - floor) + floor


class SampleCurriculumLoss(BCELoss):
    """Binary cross entropy over the rows of a batch that the curriculum selects.

    Under torch.distributed every process selects among its own rows. The weight of a row scales
    its loss; it does not make it several rows in the selection.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        floor: what an unselected row keeps, in [0, 1).
        options: ``link``, ``log_base``, ``reduction`` and ``validate``.
    """

    function: ClassVar[Any] = staticmethod(select_rows)
    takes_fractions = False
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"floor": (0.0, 0.1, 0.3)}

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        floor: float = 0.0,
        **options: Unpack[BCEOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if not 0 <= floor < 1:
            raise HierlearnError(f"floor must lie in [0, 1), not {floor}; 1 would select every row")
        self.floor = floor

    def compute(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        """Select rows for each member, then reduce."""
        losses = self.losses(output, targets, mask)  # elementwise: members need no flattening
        with torch.no_grad():
            errors = zero_one(output.log_p, output.log_not_p, targets)
            known = losses
            if mask is not None:
                known, errors = (torch.where(mask, one, 0.0) for one in (losses, errors))
            chosen = select_rows(known, errors, self.floor)
        return self.reduce(losses * chosen[..., None], targets, mask, weight)
