"""What metrics read, in one place: scores, targets and decisions become checked tensors.

    scores     (N, C) floats, larger is more likely: a tensor, an array, nested lists, or the
               ``HeadOutput`` of a network, whose probabilities are read; a frame whose columns
               are the classes, in any order
    targets    (N, C) closed multi-hot as a tensor or an array of bool or 0 and 1; or labels
    decisions  (N,) class numbers, -1 for the root; or names, None for the root
    labels     one label, or a list of labels, per row; a frame or an (N, L) array of names, one
               column per level; or ``Labels``. They need a label space

A list of targets always holds labels; multi-hot targets are a tensor or an array. Where scores tie,
the earlier class comes first.

Rows of values: (N,) float64, one value per row, NaN where a row does not count; their mean.

Choices: which candidates score best, and which labels of a row are terminal.
"""

from __future__ import annotations

from contextlib import suppress
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from hierlearn.decoding.decoder import check_closed, positives
from hierlearn.decoding.probabilities import (
    array_tensor,
    as_tensor,
    check_probabilities,
    first_entry,
    widened,
)
from hierlearn.errors import HierlearnError, LabelError, unknown_name
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels, has_no_label
from hierlearn.hierarchy.names import as_rows, is_frame
from hierlearn.hierarchy.structure import row_chunks
from hierlearn.links.output import HeadOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hierlearn.decoding.probabilities import Probabilities
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.names import Label
    from hierlearn.hierarchy.structure import Ints

    Space: TypeAlias = LabelSpace | Hierarchy
    Scores: TypeAlias = Probabilities
    LabelRows: TypeAlias = Sequence[Label | Sequence[Label] | None]
    Targets: TypeAlias = Tensor | NDArray[Any] | LabelRows | Labels
    Decisions: TypeAlias = Tensor | NDArray[Any] | LabelRows
    Predicted: TypeAlias = Decisions | Scores


def check_option(kind: str, name: object, options: Any) -> None:
    """Raise for a name that the Literal ``options`` does not list."""
    if name not in get_args(options):
        raise HierlearnError(unknown_name(kind, str(name), get_args(options)))


def is_integer(number: object) -> bool:
    """Whether this is an integer, NumPy's included, and not a boolean."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def check_count(k: int, most: int, what: str = "classes") -> None:
    """Raise unless k is an integer from 1 to ``most``."""
    if not is_integer(k) or not 1 <= k <= most:
        raise HierlearnError(f"k = {k!r} is outside 1..{most}, the number of {what}")


def hierarchy_of(label_space: Space | None) -> Hierarchy | None:
    """Return the hierarchy of a label space, or None without one."""
    return None if label_space is None else LabelSpace.of(label_space).hierarchy


def as_scores(scores: Scores, hierarchy: Hierarchy | None = None) -> Tensor:
    """Return (N, C) floats of at least 32 bits; raise for other shapes and for NaN."""
    scores = read_scores(scores, hierarchy)
    if not scores.is_floating_point():
        raise HierlearnError(f"scores must be floating point, not {scores.dtype}")
    shape = tuple(scores.shape)
    columns = "C" if hierarchy is None else len(hierarchy)
    if len(shape) != 2 or not shape[1] or (hierarchy is not None and shape[1] != columns):
        raise HierlearnError(f"scores {shape} must be (N, {columns}), one column per class")
    scores = widened(scores.detach())
    found = first_entry(scores, torch.isnan)
    if found is not None:
        row, number = found
        raise HierlearnError(f"row {row}: the score of {class_name(hierarchy, number)} is NaN")
    return scores


def read_scores(scores: Scores, hierarchy: Hierarchy | None, what: str = "scores") -> Tensor:
    """Return scores as a tensor; the columns of a frame are put in the hierarchy's order."""
    if isinstance(scores, (Tensor, HeadOutput)):
        return as_tensor(scores)
    if is_frame(scores):
        frame: Any = scores
        places = {str(name): place for place, name in enumerate(frame.columns)}
        named = hierarchy is not None and places.keys() == set(hierarchy.names)
        if hierarchy is not None and named and len(frame.columns) == len(hierarchy):
            return as_tensor(frame.to_numpy()[:, [places[name] for name in hierarchy.names]], what)
    first = None
    with suppress(ValueError):  # rows of different lengths, which raise below
        array = np.asarray(scores)
        first = next(iter(array.flat), None)
    if isinstance(first, str):
        raise HierlearnError(
            f"{what} are labels, such as {str(first)!r}, but this metric reads (N, C) numbers "
            f"first, one column per class, as predict_node_proba gives; metrics of labels are "
            f"hierarchical_f1, exact_match, answer_accuracy and hierarchical_cost"
        )
    return as_tensor(scores, what)


def as_probabilities(probabilities: Probabilities, hierarchy: Hierarchy) -> Tensor:
    """Return (N, C) probabilities of at least 32 bits; raise for values outside [0, 1]."""
    nodes = read_scores(probabilities, hierarchy, "probabilities").detach()
    within = check_probabilities(nodes, hierarchy)
    p = widened(nodes)
    return p if within else p.clamp(0.0, 1.0)  # what rounding carried outside


def read_targets(targets: Targets, hierarchy: Hierarchy | None, what: str = "targets") -> Tensor:
    """Return targets as a tensor; labels are encoded, multi-hot entries are not checked."""
    found = read_labels(targets, hierarchy, what)
    if isinstance(found, Tensor):
        if found.dim() != 1 or found.dtype == torch.bool or found.is_floating_point():
            return found
        found = [None if number == -1 else number for number in found.tolist()]
    return encoded(found, hierarchy, what)


def read_labels(values: Any, hierarchy: Hierarchy | None, what: str) -> Tensor | list[Any]:
    """Return tensors and arrays of numbers as a tensor, anything else as one entry per row.

    Integers are class numbers, and rows of nothing else become (N,), -1 for None. In a list or an
    array an integer that is also the name of another class raises; a tensor holds class numbers.
    """
    if isinstance(values, Tensor):
        return values
    if isinstance(values, Labels):
        return values.targets()
    rows = label_rows(values, hierarchy, what)
    if rows is None:
        numbers = array_tensor(values, what)
    elif all(row is None or is_integer(row) for row in rows):
        numbers = torch.tensor([-1 if row is None else int(row) for row in rows], dtype=torch.long)
    else:
        return rows
    if hierarchy is not None and numbers.dim() == 1 and not numbers.is_floating_point():
        for number in set(numbers.tolist()):
            name = str(number)
            if name in hierarchy and hierarchy.index(name) != number:
                raise LabelError(
                    f"{number} could be the class number {number} or the class named {name!r}; "
                    f"give names as text, or class numbers as a tensor"
                )
    return numbers


def as_targets(
    targets: Targets,
    shape: Sequence[int],
    hierarchy: Hierarchy | None = None,
    what: str = "targets",
    beside: str = "scores",
) -> Tensor:
    """Return (N, C) bool; raise for another shape than ``beside`` has, and values but 0 and 1."""
    dense = read_targets(targets, hierarchy, what)
    if tuple(dense.shape) != tuple(shape):
        raise HierlearnError(f"{what} {tuple(dense.shape)} must match {beside} {tuple(shape)}")
    if dense.dtype == torch.bool:
        return dense
    found = first_entry(dense, lambda part: (part != 0) & (part != 1))
    if found is not None:
        row, number = found
        remedy = "; for probabilities pass threshold=" if what == "answers" else ""
        raise HierlearnError(
            f"row {row}: the entry of {class_name(hierarchy, number)} in {what} is "
            f"{dense[row, number].item()}, but {what} are 0 or 1{remedy}"
        )
    return dense.bool()


def inputs(
    scores: Scores, targets: Targets, hierarchy: Hierarchy | None = None, *, closed: bool = True
) -> tuple[Tensor, Tensor]:
    """Return scores and targets on one device, checked.

    Args:
        scores: (N, C) scores.
        targets: (N, C) multi-hot, or labels.
        hierarchy: the taxonomy, if it is known.
        closed: whether targets must be closed under the ancestors of a known hierarchy.
    """
    scores = as_scores(scores, hierarchy)
    targets = as_targets(targets, scores.shape, hierarchy).to(scores.device)
    if hierarchy is not None and closed:
        check_closed(targets, hierarchy)
    return scores, targets


def as_classes(
    classes: Decisions, count: int | None = None, hierarchy: Hierarchy | None = None
) -> Tensor:
    """Return (N,) int64 class numbers, -1 for the root; raise for anything else.

    Args:
        classes: class numbers or names.
        count: the number of classes; by default that of the hierarchy.
        hierarchy: the taxonomy, which names need.
    """
    found = read_labels(classes, hierarchy, "decisions")
    if not isinstance(found, Tensor):
        given = (None if has_no_label(row) else row for row in found)
        offsets, numbers = needed(hierarchy, "decisions").look_up(given, numbers=True)
        counts = np.diff(offsets)
        if (counts > 1).any():
            row = int(np.flatnonzero(counts > 1)[0])
            raise LabelError(f"row {row} has {counts[row]} labels, but a decision is one class")
        found = torch.full((len(counts),), -1)
        found[torch.from_numpy(counts == 1)] = torch.from_numpy(numbers)
    if found.dim() != 1 or found.is_floating_point() or found.dtype == torch.bool:
        raise HierlearnError(
            f"decisions must be (N,) class numbers, not {found.dtype} of shape {tuple(found.shape)}"
        )
    if count is None:
        count = len(needed(hierarchy, "decisions"))
    outside = ((found < -1) | (found >= count)).nonzero()
    if len(outside):
        row = int(outside[0])
        raise HierlearnError(
            f"row {row}: class number {int(found[row])} is outside -1..{count - 1}, "
            f"where -1 is the root"
        )
    return found.long()


def decisions(
    classes: Decisions, targets: Targets, hierarchy: Hierarchy | None = None
) -> tuple[Tensor, Tensor]:
    """Return (N,) class numbers and (N, C) bool targets on their device, checked."""
    truth = read_targets(targets, hierarchy)
    if truth.dim() != 2:
        raise HierlearnError(f"targets {tuple(truth.shape)} must be (N, C), one column per class")
    count = truth.shape[1] if hierarchy is None else len(hierarchy)
    classes = as_classes(classes, count, hierarchy)
    shape = (len(classes), count)
    truth = as_targets(truth, shape, hierarchy, beside="decisions and classes")
    return classes, truth.to(classes.device)


def label_rows(values: Any, hierarchy: Hierarchy | None, what: str) -> list[Any] | None:
    """Return the labels of each row, or None where values are numbers in an array or a frame."""
    if isinstance(values, (list, tuple)):
        first = values[0] if values else None
        if hierarchy is not None and isinstance(first, (list, tuple)):
            flags = all(entry in (0, 1) for entry in first)
            if flags and len(first) == len(hierarchy) >= 3:
                raise LabelError(
                    f"row 0 of {what} is a list of {len(first)} zeros and ones, but lists are "
                    f"read as labels; give multi-hot {what} as an array or a tensor"
                )
        return list(values)
    if isinstance(values, (str, bytes)):
        raise LabelError(f"{what} are a list with one entry per row, not the text {values!r}")
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        return None
    sep = "/" if hierarchy is None else hierarchy.sep
    paths = as_rows(values if is_frame(values) else array, sep, what)
    if isinstance(paths, list):
        return paths
    if array.ndim != 1:
        raise HierlearnError(
            f"{what} must be numbers or labels, not {array.dtype} of shape {array.shape}"
        )
    return [None if has_no_label(row) else row for row in array.tolist()]


def needed(hierarchy: Hierarchy | None, what: str) -> Hierarchy:
    """Return the hierarchy that labels are read by; raise where there is none."""
    if hierarchy is None:
        raise HierlearnError(f"{what} are labels, which need label_space= to be read by")
    return hierarchy


def encoded(rows: list[Any], hierarchy: Hierarchy | None, what: str) -> Tensor:
    """Return (N, C) closed bool of rows of labels."""
    return Labels(rows, needed(hierarchy, what), numbers=True).targets()


def class_name(hierarchy: Hierarchy | None, number: int) -> str:
    """Return a class for an error: its number, or its name where the hierarchy is known."""
    return f"class {number}" if hierarchy is None else f"{hierarchy.names[number]!r}"


# ---------------------------------------- rows

Reduction = Literal["mean", "none"]


def by_rows(run: Callable[[Tensor, Tensor], Tensor], scores: Tensor, targets: Tensor) -> Tensor:
    """Apply a row-wise function to a chunk of rows at a time, so that temporaries stay small."""
    spans = row_chunks(*scores.shape)
    return torch.cat([run(scores[rows], targets[rows]) for rows in spans])


def check_rows(count: int, metric: str) -> None:
    """Raise for a test set without rows."""
    if not count:
        raise HierlearnError(f"there are no rows: an empty test set has no {metric}")


def only_where(values: Tensor, counts: Tensor) -> Tensor:
    """Return (N,) float64 values, NaN in the rows that do not count."""
    return torch.where(counts, values.double(), torch.nan)


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


# ---------------------------------------- choices


def terminal_labels(targets: Tensor, hierarchy: Hierarchy) -> tuple[Ints, Ints]:
    """Return rows and class numbers of the most specific labels of closed targets, by row."""
    rows, numbers = positives(targets)
    keep = hierarchy.most_specific(rows, numbers)
    return rows[keep], numbers[keep]


def best_classes(scores: Tensor, numbers: Tensor | None = None, k: int = 1) -> Tensor:
    """Return (N, k) the best-scored of some classes, best first; the earlier class where they tie.

    Args:
        scores: (N, C) floats.
        numbers: (M,) the class numbers to choose from, ascending; by default all.
        k: how many, at most M.
    """
    if numbers is not None:
        numbers = numbers.to(scores.device)
    parts = []
    for rows in row_chunks(*scores.shape):
        part = scores[rows]
        if numbers is not None and len(numbers) < scores.shape[1]:
            part = part[:, numbers]
        if k == 1:
            best = part.argmax(dim=1, keepdim=True)  # the first of equal values
        else:
            best = part.sort(dim=1, descending=True, stable=True).indices[:, :k]
        parts.append(best if numbers is None else numbers[best])
    return torch.cat(parts)
