"""Class weights: how much the rows of a class count.

    balanced   w_c = N / (K n_c), with n_c of N rows whose most specific label is c, K such classes;
               a sample_weight counts a row as often as it says
    a mapping  the weight of a class; it holds for all classes below it, unless a nearer one is
               named. What is not named has weight 1

A row has the weight of its most specific label, with several the mean of theirs, and 1 without one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierlearnError, LabelError
from hierlearn.estimator.memory import class_of
from hierlearn.hierarchy.labels import Labels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.estimator.label_format import LabelFormat
    from hierlearn.hierarchy.nodes import Label


def weigh_rows(
    class_weight: Any, names: list[list[Label]], form: LabelFormat, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return (N,) weights of rows times those of their classes.

    Args:
        class_weight: "balanced", a mapping from classes to weights, or None.
        names: the labels of each row.
        form: of the labels.
        weights: (N,) how much each row counts by itself.
    """
    if class_weight is None:
        return weights
    offsets, numbers = Labels(names, form.hierarchy).terminal
    sizes = np.diff(offsets)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    if isinstance(class_weight, Mapping):
        of_class = inherited(class_weight, form)
    elif isinstance(class_weight, str) and class_weight == "balanced":
        counts = np.bincount(numbers, weights[rows], minlength=len(form.hierarchy))
        present = counts > 0
        of_class = np.ones(len(counts))
        of_class[present] = counts.sum() / (present.sum() * counts[present])
    else:
        raise HierlearnError(
            f"class_weight must be 'balanced', a mapping from classes to weights, or None, not "
            f"{class_weight!r}"
        )
    sums = np.bincount(rows, of_class[numbers], minlength=len(sizes))
    found: NDArray[np.float64] = weights * np.where(sizes > 0, sums / np.maximum(sizes, 1), 1.0)
    return found


def inherited(class_weight: Mapping[Any, Any], form: LabelFormat) -> NDArray[np.float64]:
    """Return (C,) the weight of each class: its own, or that of the nearest named class above."""
    hierarchy = form.hierarchy
    own = {}
    for label, weight in class_weight.items():
        try:
            number = hierarchy.index(class_of(label, form))
        except LabelError as error:
            raise LabelError(f"class_weight: {error}") from None
        own[number] = checked(label, weight)
    weights = np.ones(len(hierarchy))
    depth = np.zeros(len(hierarchy), dtype=int)  # the level of the class that a weight is of
    for number in range(len(hierarchy)):  # parents come before their children
        if number in own:
            weights[number], depth[number] = own[number], hierarchy.levels[number]
            continue
        above = [int(parent) for parent in hierarchy.parents(number)]
        if above:
            depth[number] = depth[above].max()
            weights[number] = np.mean([weights[p] for p in above if depth[p] == depth[number]])
    return weights


def checked(label: Any, weight: Any) -> float:
    """Return a weight; raise unless it is a number of at least 0."""
    try:
        value = float(weight)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise HierlearnError(f"class_weight of {label!r} must be at least 0, not {weight!r}")
    return value
