"""Average precision, and the two areas under the pooled precision-recall curve in the literature.

At each distinct score v, with TP and FP the positive and negative entries that score at least v:

    precision = TP / (TP + FP),    recall = TP / P,    P all positives
    average precision = sum over distinct v, falling, of (recall - recall before) * precision

This is scikit-learn's ``average_precision_score``, ties included. "micro" pools all entries,
"macro" is the mean over the classes that have a positive.

``au_prc`` is what the neural literature since C-HMCNN (Giunchiglia and Lukasiewicz, 2020) calls
AU(PRC): the micro average over all classes but the roots. Their data code leaves out the classes
named 'root', 'GO0003674', 'GO0005575' and 'GO0008150'. The first is the artificial root of their
trees, which here is implicit and no class, so on trees nothing is left out; the others are the
roots of the Gene Ontology's three branches, which are top classes here (``evaluated_classes``).

``clus_au_prc`` is the AU(PRC) of Clus (Vens et al., 2008), which joins the points as Davis and
Goadrich (2006) do: between two points TP grows by one per step and FP in proportion,

    FP(t) = FP0 + (FP1 - FP0) / (TP1 - TP0) * (t - TP0),    precision(t) = t / (t + FP(t))

and trapezoids are summed over those steps. As in Clus's own code, the first point is extended
level to recall 0, the last is the one where everything is predicted, and classes without a positive
row are left out of the pool. Clus's 2008 mode with 51 fixed thresholds is not followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.inputs import as_scores, as_targets, check_option, check_rows, hierarchy_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hierlearn.metrics.inputs import Scores, Space, Targets

    Classes: TypeAlias = Literal["evaluated"] | Tensor | NDArray[np.bool_] | Sequence[bool]

Average = Literal["micro", "macro", "none"]
GO_ROOTS = frozenset({"0003674", "0005575", "0008150"})  # function, component, process
STEPS_AT_ONCE = 1 << 20


def average_precision(
    scores: Scores,
    targets: Targets,
    label_space: Space | None = None,
    *,
    average: Average = "micro",
    classes: Classes | None = None,
) -> Tensor:
    """Return the average precision.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) multi-hot, or labels.
        label_space: the taxonomy, which labels and classes "evaluated" need.
        average: "micro" over all entries pooled, "macro" over the classes with a positive row, or
            "none" for (C,), NaN for a class without a positive row or not evaluated.
        classes: which classes are evaluated, as (C,) bool, or "evaluated" for those of
            ``evaluated_classes``; by default all.
    """
    check_option("average", average, Average)
    scores, targets, numbers = checked(
        scores, targets, label_space, classes, f"{average} average precision"
    )
    if average == "micro":
        return _step_area(*pooled_curve(scores, targets, numbers))
    found = torch.full((scores.shape[1],), torch.nan, dtype=torch.float64, device=scores.device)
    for number in numbers[targets.any(dim=0)[numbers]].tolist():
        found[number] = _step_area(*curve(scores[:, number], targets[:, number]))
    return found.nanmean() if average == "macro" else found


def au_prc(scores: Scores, targets: Targets, label_space: Space) -> Tensor:
    """Return C-HMCNN's AU(PRC): the pooled average precision without the roots of GO.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy.
    """
    return average_precision(scores, targets, label_space, classes="evaluated")


def clus_au_prc(
    scores: Scores,
    targets: Targets,
    label_space: Space | None = None,
    *,
    classes: Classes | None = None,
) -> Tensor:
    """Return Clus's area under the pooled precision-recall curve, interpolated.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) multi-hot, or labels; classes without a positive row are left out.
        label_space: the taxonomy, which labels and classes "evaluated" need.
        classes: which classes are evaluated, as (C,) bool, or "evaluated" for those of
            ``evaluated_classes``; by default all.
    """
    scores, targets, numbers = checked(scores, targets, label_space, classes, "Clus's AU(PRC)")
    numbers = numbers[targets.any(dim=0)[numbers]]
    return _interpolated_area(*pooled_curve(scores, targets, numbers))


def evaluated_classes(label_space: Space) -> Tensor:
    """Return (C,) bool: the classes that C-HMCNN and Clus's scripts evaluate.

    All but the top classes that are the roots of the Gene Ontology's branches, with or without a
    colon: every protein belongs to them, so they carry no information.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    is_root = [
        level == 1 and name.startswith("GO") and name[2:].lstrip(":_") in GO_ROOTS
        for name, level in zip(hierarchy.bare_names, hierarchy.levels.tolist(), strict=True)
    ]
    return ~torch.tensor(is_root)


def checked(
    scores: Scores,
    targets: Targets,
    label_space: Space | None,
    classes: Classes | None,
    metric: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores, bool targets and the evaluated class numbers; raise without a positive."""
    hierarchy = hierarchy_of(label_space)
    scores = as_scores(scores, hierarchy)
    targets = as_targets(targets, scores.shape, hierarchy).to(scores.device)
    check_rows(len(scores), metric)
    numbers = class_numbers(classes, label_space, scores.shape[1]).to(scores.device)
    if not bool(targets.any(dim=0)[numbers].any()):
        raise HierlearnError(
            f"no evaluated class has a positive among the {len(scores)} rows, "
            f"so there is no {metric}"
        )
    return scores, targets, numbers


def class_numbers(classes: Classes | None, label_space: Space | None, count: int) -> Tensor:
    """Return evaluated classes as numbers, ascending; raise for none."""
    if classes is None:
        return torch.arange(count)
    if isinstance(classes, str):
        if classes != "evaluated":
            raise HierlearnError(f"classes {classes!r} must be 'evaluated' or a mask")
        if label_space is None:
            raise HierlearnError(
                "classes 'evaluated' need label_space=, whose names they are found by"
            )
        classes = evaluated_classes(label_space)
    mask = torch.as_tensor(classes)
    if mask.dtype != torch.bool or tuple(mask.shape) != (count,) or not mask.any():
        raise HierlearnError(
            f"classes must be a boolean mask of shape ({count},) with at least one class, not "
            f"{mask.dtype} of shape {tuple(mask.shape)}"
        )
    return mask.nonzero().reshape(-1)


def pooled_curve(
    scores: Tensor, targets: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the ``curve`` of all entries of some classes."""
    if len(numbers) < scores.shape[1]:
        scores, targets = scores[:, numbers], targets[:, numbers]
    return curve(scores.reshape(-1), targets.reshape(-1))


def curve(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the points of the curve at the distinct scores of positive entries, falling.

    Only there does recall grow. The scores are sorted by value alone, and counts are looked up, so
    that no array of N x C indices is made.

    Args:
        scores: (M,) scores of the pooled entries.
        positive: (M,) bool.

    Returns:
        (V,) float64 each: TP and FP at or above each score, FP strictly above it, and the number of
        positive entries of that score.
    """
    values, counts = torch.unique(scores[positive], return_counts=True)
    # On the CPU without indices, which would take more memory than the values.
    is_cpu = scores.device.type == "cpu"
    ordered = torch.from_numpy(np.sort(scores.numpy())) if is_cpu else scores.sort().values
    above, reached = (
        len(ordered) - torch.searchsorted(ordered, values, side=side) for side in ("right", "left")
    )
    own, above, reached = (x.flip(0).double() for x in (counts, above, reached))
    tp = own.cumsum(0)
    return tp, reached - tp, above - (tp - own), own


def _step_area(tp: Tensor, fp: Tensor, _: Tensor, own: Tensor) -> Tensor:
    return (own * tp / (tp + fp)).sum() / tp[-1]


def _interpolated_area(tp: Tensor, fp: Tensor, fp_before: Tensor, own: Tensor) -> Tensor:
    """Sum trapezoids over every integer number of true positives."""
    total = int(tp[-1])
    tp_before = tp - own
    slope = (fp - fp_before) / own
    area = tp.new_zeros(())
    for begin in range(0, total, STEPS_AT_ONCE):
        right = torch.arange(begin + 1, min(begin + STEPS_AT_ONCE, total) + 1, device=tp.device)
        right = right.double()
        place = torch.searchsorted(tp, right)
        ends = []
        for t in (right - 1, right):
            false = fp_before[place] + slope[place] * (t - tp_before[place])
            ends.append(t / (t + false))
        # Before the first point precision is 0 / 0; from there to recall 0 the curve is level.
        ends[0] = torch.where(ends[0].isnan(), ends[1], ends[0])
        area = area + (ends[0] + ends[1]).sum() / 2
    return area / total
