"""What decoders take: (N, C) node probabilities, checked, widened and handed out in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.decoding.chunks import row_chunks
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy

OUTSIDE = 1e-5  # how far rounding may carry a probability out of [0, 1]
NOT_ADDITIVE = 1e-4  # how far rounding may carry the children's sum above their parent


def checked_rows(p: Tensor, hierarchy: Hierarchy, width: int) -> Iterator[tuple[slice, Tensor]]:
    """Check probabilities at once, and yield them by rows: float32 or float64, within [0, 1].

    Args:
        p: (N, C) node probabilities.
        hierarchy: the taxonomy.
        width: the elements a row takes in the largest temporary.

    Raises:
        HierlearnError: for another shape or type, or naming the first row and class outside [0, 1].
    """
    within = check_probabilities(p, hierarchy)

    def parts() -> Iterator[tuple[slice, Tensor]]:
        for rows in row_chunks(len(p), width):
            part = widened(p[rows])
            yield rows, part if within else part.clamp(0.0, 1.0)

    return parts()


def check_probabilities(p: Tensor, hierarchy: Hierarchy) -> bool:
    """Refuse what is no (N, C) float tensor in [0, 1]; tell whether rounding leaves it at all."""
    if not p.is_floating_point():
        raise HierlearnError(f"probabilities must be floating point, not {p.dtype}")
    if p.dim() != 2 or p.shape[1] != len(hierarchy):
        raise HierlearnError(f"probabilities {tuple(p.shape)} must be (N, {len(hierarchy)})")
    if not p.numel():
        return True
    least, most = (float(end) for end in torch.aminmax(p))  # not a number if one value is
    if not (least >= -OUTSIDE and most <= 1 + OUTSIDE):
        raise HierlearnError(first_outside(p, hierarchy))
    return least >= 0 and most <= 1


def first_outside(p: Tensor, hierarchy: Hierarchy) -> str:
    """Word the first value outside [0, 1]."""
    for rows in row_chunks(len(p), len(hierarchy)):
        wrong = ~((p[rows] >= -OUTSIDE) & (p[rows] <= 1 + OUTSIDE))
        if wrong.any():
            row, number = (int(i) for i in wrong.nonzero()[0])
            break
    return (
        f"row {rows.start + row}: the probability of {hierarchy.names[number]!r} is "
        f"{p[rows.start + row, number].item():g}, outside [0, 1]; turn logits into probabilities "
        f"with a link"
    )


def widened(p: Tensor) -> Tensor:
    """Take half precision to float32."""
    return p.float() if p.dtype in (torch.float16, torch.bfloat16) else p


def slack_of(dtype: torch.dtype) -> float:
    """Return what sums of probabilities of this precision may be off by."""
    return max(NOT_ADDITIVE, 2 * torch.finfo(dtype).eps)


def check_share(name: str, value: float) -> float:
    """Return a number of [0, 1], or refuse it."""
    if not 0 <= value <= 1:
        raise HierlearnError(f"{name} must lie in [0, 1], not {value}")
    return float(value)
