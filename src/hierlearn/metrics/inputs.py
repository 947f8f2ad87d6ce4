"""What every metric asks of its inputs, and how rows become a mean: one place, one wording.

    scores   (N, C) floats, larger is more likely; NaN is refused, half precision is widened
    targets  (N, C) closed multi-hot, bool or 0 and 1
    rows     (N,) float64, a value a row and NaN where the row does not count

Where scores tie, the earlier class comes first.
"""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from hierlearn.decoding.chunks import row_chunks
from hierlearn.decoding.probabilities import check_probabilities, widened
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.hierarchy.structure import expand_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints

Reduction = Literal["mean", "none"]


def check_option(kind: str, name: object, options: Any) -> None:
    """Refuse a name that the Literal ``options`` does not list."""
    if name not in get_args(options):
        raise HierlearnError(unknown_name(kind, str(name), get_args(options)))


def is_whole(number: object) -> bool:
    """Whether this is a whole number, NumPy's included, and no truth value."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def check_count(k: int, most: int, what: str = "classes") -> None:
    """Refuse a k that is no whole number from 1 to ``most``."""
    if not is_whole(k) or not 1 <= k <= most:
        raise HierlearnError(f"k = {k!r} is outside 1..{most}, the number of {what}")


def check_rows(count: int, metric: str) -> None:
    """Refuse a test set without rows."""
    if not count:
        raise HierlearnError(f"there are no rows: an empty test set has no {metric}")


def class_name(hierarchy: Hierarchy | None, number: int) -> str:
    """Name a class for an error: its number, and its name where the hierarchy is known."""
    return f"class {number}" if hierarchy is None else f"{hierarchy.names[number]!r}"


def as_scores(scores: Tensor, hierarchy: Hierarchy | None = None) -> Tensor:
    """Return (N, C) floats of at least 32 bits; refuse other shapes and NaN."""
    if not scores.is_floating_point():
        raise HierlearnError(f"scores must be floating point, not {scores.dtype}")
    shape = tuple(scores.shape)
    if hierarchy is not None and (scores.dim() != 2 or shape[1] != len(hierarchy)):
        raise HierlearnError(
            f"scores {shape} must be (N, {len(hierarchy)}), a column a class of the hierarchy"
        )
    if scores.dim() != 2 or not shape[1]:
        raise HierlearnError(f"scores {shape} must be (N, C), a column a class")
    scores = widened(scores.detach())
    found = first_entry(scores, torch.isnan)
    if found is not None:
        row, number = found
        raise HierlearnError(f"row {row}: the score of {class_name(hierarchy, number)} is NaN")
    return scores


def as_probabilities(probabilities: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (N, C) probabilities of at least 32 bits; refuse what lies outside [0, 1]."""
    within = check_probabilities(probabilities, hierarchy)
    p = widened(probabilities.detach())
    return p if within else p.clamp(0.0, 1.0)  # what rounding carried outside


def as_targets(
    targets: Tensor,
    shape: Sequence[int],
    hierarchy: Hierarchy | None = None,
    what: str = "targets",
    beside: str = "scores",
) -> Tensor:
    """Return (N, C) bool; refuse another shape than ``beside`` has, and values but 0 and 1."""
    if tuple(targets.shape) != tuple(shape):
        raise HierlearnError(f"{what} {tuple(targets.shape)} must match {beside} {tuple(shape)}")
    if targets.dtype == torch.bool:
        return targets
    found = first_entry(targets, lambda part: (part != 0) & (part != 1))
    if found is not None:
        row, number = found
        raise HierlearnError(
            f"row {row}: the entry of {class_name(hierarchy, number)} in {what} is "
            f"{targets[row, number].item()}, but {what} are 0 or 1"
        )
    return targets.bool()


def inputs(
    scores: Tensor, targets: Tensor, hierarchy: Hierarchy | None = None
) -> tuple[Tensor, Tensor]:
    """Return scores and targets, checked; with a hierarchy, targets must be closed."""
    scores = as_scores(scores, hierarchy)
    targets = as_targets(targets, scores.shape, hierarchy).to(scores.device)
    if hierarchy is not None:
        check_closed(targets, hierarchy)
    return scores, targets


def as_classes(classes: Tensor, count: int) -> Tensor:
    """Return (N,) int64 class numbers, -1 for the root; refuse others."""
    if classes.dim() != 1 or classes.is_floating_point() or classes.dtype == torch.bool:
        raise HierlearnError(
            f"decisions must be (N,) class numbers, not {classes.dtype} of shape "
            f"{tuple(classes.shape)}"
        )
    outside = ((classes < -1) | (classes >= count)).nonzero()
    if len(outside):
        row = int(outside[0])
        raise HierlearnError(
            f"row {row}: class number {int(classes[row])} is outside -1..{count - 1}, "
            f"where -1 is the root"
        )
    return classes.long()


def decisions(
    classes: Tensor, targets: Tensor, hierarchy: Hierarchy | None = None
) -> tuple[Tensor, Tensor]:
    """Return (N,) class numbers and (N, C) bool targets on their device, checked."""
    if targets.dim() != 2:
        raise HierlearnError(f"targets {tuple(targets.shape)} must be (N, C), a column a class")
    count = targets.shape[1] if hierarchy is None else len(hierarchy)
    classes = as_classes(classes, count)
    shape = (len(classes), count)
    targets = as_targets(targets, shape, hierarchy, beside="decisions and classes")
    return classes, targets.to(classes.device)


def first_entry(x: Tensor, is_bad: Callable[[Tensor], Tensor]) -> tuple[int, int] | None:
    """Return row and class of the first bad entry, looking at a chunk of rows at a time."""
    for rows in row_chunks(*x.shape):
        bad = is_bad(x[rows])
        if bad.any():
            row, number = (int(i) for i in bad.nonzero()[0])
            return rows.start + row, number
    return None


def by_rows(run: Callable[[Tensor, Tensor], Tensor], scores: Tensor, targets: Tensor) -> Tensor:
    """Run a row-wise function a chunk of rows at a time, so that temporaries stay small."""
    spans = row_chunks(*scores.shape)
    return torch.cat([run(scores[rows], targets[rows]) for rows in spans])


def positives(targets: Tensor) -> tuple[Ints, Ints]:
    """Return rows and class numbers of the positive entries, by row, then class."""
    rows, numbers = targets.nonzero().T.cpu().numpy()
    return rows, numbers


def check_closed(targets: Tensor, hierarchy: Hierarchy) -> None:
    """Refuse targets with a positive class below a parent that is not positive."""
    rows, numbers = positives(targets)
    edges, fan_in = expand_ranges(hierarchy.structure.parent_offsets, numbers)
    above = hierarchy.structure.parent_ids[edges]
    flat = rows.repeat(fan_in) * len(hierarchy) + above
    holds = targets.reshape(-1)[torch.from_numpy(flat).to(targets.device)]
    if not bool(holds.all()):
        first = int((~holds).nonzero()[0])
        below = hierarchy.names[numbers.repeat(fan_in)[first]]
        raise HierlearnError(
            f"row {rows.repeat(fan_in)[first]}: targets are not closed: {below!r} is positive but "
            f"its parent {hierarchy.names[above[first]]!r} is not; make targets with "
            f"Hierarchy.encode"
        )


def reduce_rows(rows: Tensor, reduction: Reduction, metric: str, need: str = "a label") -> Tensor:
    """Return the rows, or the mean of those that count.

    Args:
        rows: (N,) float64, NaN where a row does not count.
        reduction: "mean" or "none".
        metric: the name of the metric, for errors.
        need: what a row needs to count, for errors.
    """
    check_option("reduction", reduction, Reduction)
    if reduction == "none":
        return rows
    check_rows(len(rows), metric)
    counted = rows[~rows.isnan()]
    if not len(counted):
        raise HierlearnError(f"none of the {len(rows)} rows has {need}, so there is no {metric}")
    return counted.mean()


def only_where(values: Tensor, counts: Tensor) -> Tensor:
    """Return (N,) float64 values, NaN in the rows that do not count."""
    return torch.where(counts, values.double(), torch.nan)
