"""What decoders and metrics read: (N, C) node probabilities as a tensor, checked, in chunks.

They come as a tensor, an array, nested lists, or the ``HeadOutput`` of a network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.structure import row_chunks
from hierlearn.links.output import HeadOutput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy

    Probabilities: TypeAlias = Tensor | NDArray[Any] | Sequence[Sequence[float]] | HeadOutput

OUTSIDE = 1e-5  # how far rounding may carry a probability out of [0, 1]
NOT_ADDITIVE = 1e-4  # how far rounding may carry the children's sum above their parent


def as_tensor(values: Probabilities, what: str = "probabilities") -> Tensor:
    """Return probabilities or scores as a tensor; the shape and the values are not checked.

    Args:
        values: a tensor, an array or nested lists; or a ``HeadOutput``, whose probabilities are
            read, averaged over the members if there are several.
        what: what the values are, for errors.
    """
    if isinstance(values, Tensor):
        return values
    if isinstance(values, HeadOutput):
        return output_probabilities(values)
    return array_tensor(values, what)


def output_probabilities(output: HeadOutput) -> Tensor:
    """Return the (N, C) probabilities of an output, the members' averaged."""
    # Detached first: the output keeps what it computes, and a loss may need its graph later.
    flat = output.map(Tensor.detach).flat()  # links read (N, C)
    if output.members is None:
        return flat.probabilities
    members = (part.reshape(output.shape) for part in flat.pair)
    return HeadOutput(*members).mean().probabilities


def array_tensor(values: Any, what: str) -> Tensor:
    """Return an array, a frame or nested lists of numbers as a tensor."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise HierlearnError(f"{what} must be (N, C), one column per class") from None
    if array.dtype.kind not in "fiub":
        raise HierlearnError(f"{what} must be numbers, not {array.dtype} of shape {array.shape}")
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch shares memory with an array, but not with every array
    return torch.from_numpy(array)


def checked_rows(p: Tensor, hierarchy: Hierarchy, width: int) -> Iterator[tuple[slice, Tensor]]:
    """Check probabilities at once, and yield them by rows: float32 or float64, within [0, 1].

    Args:
        p: (N, C) node probabilities.
        hierarchy: the taxonomy.
        width: the elements per row of the largest temporary.

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
    """Raise unless p is (N, C) floats in [0, 1]; return whether that holds without rounding."""
    if not p.is_floating_point():
        raise HierlearnError(f"probabilities must be floating point, not {p.dtype}")
    if p.dim() != 2 or p.shape[1] != len(hierarchy):
        raise HierlearnError(f"probabilities {tuple(p.shape)} must be (N, {len(hierarchy)})")
    if not p.numel():
        return True
    least, most = (float(end) for end in torch.aminmax(p))  # NaN if one value is
    if not (least >= -OUTSIDE and most <= 1 + OUTSIDE):
        raise HierlearnError(first_outside(p, hierarchy))
    return least >= 0 and most <= 1


def first_outside(p: Tensor, hierarchy: Hierarchy) -> str:
    """Return the error message for the first value outside [0, 1]."""
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
    """Return half precision as float32, anything else unchanged."""
    return p.float() if p.dtype in (torch.float16, torch.bfloat16) else p


def slack_of(dtype: torch.dtype) -> float:
    """Return the rounding error to allow for in sums of probabilities of this precision."""
    return max(NOT_ADDITIVE, 2 * torch.finfo(dtype).eps)


def check_fraction(name: str, value: float) -> float:
    """Return a number in [0, 1]; raise for any other."""
    if not 0 <= value <= 1:
        raise HierlearnError(f"{name} must lie in [0, 1], not {value}")
    return float(value)
