"""HierDist: how far in the hierarchy the prediction lies from the truth.

    d(c, r) = height of lca(c, r)                     "lca-height", the paper's
    d(c, r) = level(c) + level(r) - 2 level(lca(c, r))    "path", edges through the implicit root
    d(c)    = min over r in R of d(c, r)
    HierDist = mean over rows of d(c),    c the best-scored candidate

R is the truth of a row: all its positive classes ("closure"), the most specific ones ("terminal")
or those that the data names ("annotated"). With "lca-height" a prediction that equals an inner
class of R still costs that class's height (``correct_cost="height"``, as the paper defines it);
with ``correct_cost="zero"`` every class of R costs nothing. HierDist@k (Bertinetto et al., 2020) is
the mean of d over the k best.

Of lca-height the nearest class of a closed set is always a terminal one: a common ancestor of c and
r is one of c and every t below r too, so lca(c, t) is no higher than lca(c, r).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from hierlearn.decoding.decoder import check_closed, most_specific, positives
from hierlearn.decoding.probabilities import Candidates, candidate_classes
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.inputs import (
    Reduction,
    as_targets,
    best_classes,
    check_count,
    check_option,
    decisions,
    inputs,
    reduce_rows,
    terminal_labels,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.structure import Ints
    from hierlearn.metrics.inputs import Decisions, Scores, Space, Targets

Distance = Literal["lca-height", "path"]
CorrectCost = Literal["height", "zero"]
Reference = Literal["closure", "terminal", "annotated"]


def hier_dist(
    scores: Scores,
    targets: Targets,
    label_space: Space,
    *,
    candidates: Candidates = "all",
    correct_cost: CorrectCost = "height",
    reference: Reference = "closure",
    distance: Distance = "lca-height",
    k: int = 1,
    annotated: Targets | None = None,
    mistakes_only: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the mean distance of the best-scored candidates from the truth.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy and its terminal classes; a tree where ``distance`` is "path".
        candidates: what may be predicted: "all" classes (the paper), "terminal" ones or "leaves".
        correct_cost: whether a prediction in R costs its own "height" or "zero".
        reference: what R is: the "closure", the "terminal" labels or the "annotated" ones.
        distance: "lca-height" or "path".
        k: how many of the best candidates are averaged.
        annotated: (N, C) multi-hot, the labels that the data names; only for reference "annotated".
        mistakes_only: whether only rows count whose best candidate is not in R, see
            ``mistake_severity``.
        reduction: "mean" over the rows with a label, or "none" for (N,), NaN without one.
    """
    space = LabelSpace.of(label_space)
    hierarchy = space.hierarchy
    check_option("correct_cost", correct_cost, CorrectCost)
    check_option("reference", reference, Reference)
    check_distance(distance, hierarchy)
    numbers = candidate_classes(space, candidates)
    check_count(k, len(numbers), "candidates")
    scores, targets = inputs(scores, targets, hierarchy)
    picks = best_classes(scores, numbers, k)  # (N, k)
    truth = _truth(reference, targets, hierarchy, annotated)
    if reference == "terminal" or (reference == "closure" and distance == "lca-height"):
        rows, labels = terminal_labels(targets, hierarchy)  # see the module's last paragraph
    else:
        rows, labels = positives(truth)
    columns = [
        _smallest(distances(column[rows], labels, hierarchy, distance), rows, len(column))
        for column in picks.cpu().numpy().T
    ]
    costs = torch.from_numpy(np.stack(columns, axis=1)).to(picks.device)  # (N, k)
    right = truth.gather(1, picks)
    if correct_cost == "zero":
        costs = costs.masked_fill(right, 0.0)
    costs = costs.mean(dim=1)
    if not mistakes_only:
        return reduce_rows(costs, reduction, "HierDist")
    reduce_rows(costs, reduction, "mistake severity")  # raises where no row has a label
    costs = costs.masked_fill(right[:, 0], torch.nan)
    return costs if reduction == "none" else costs.nanmean()


def mistake_severity(
    scores: Scores,
    targets: Targets,
    label_space: Space,
    *,
    reduction: Reduction = "mean",
    **options: Any,
) -> Tensor:
    """Return ``hier_dist`` over the rows whose best-scored candidate is not in R.

    Without any mistake there is no severity: the mean is NaN, since 0 would read as a distance.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy and its terminal classes; a tree where ``distance`` is "path".
        reduction: "mean" over the mistakes, or "none" for (N,), NaN in correct rows and in rows
            without a label.
        options: the other options of ``hier_dist``; with k = 1 ``correct_cost`` has no effect.
    """
    return hier_dist(
        scores, targets, label_space, reduction=reduction, mistakes_only=True, **options
    )


def hierarchical_cost(
    classes: Decisions,
    targets: Targets,
    label_space: Space,
    *,
    distance: Distance = "lca-height",
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the mean cost of decisions: of each, the distance to the nearest terminal label.

    Args:
        classes: (N,) class numbers, -1 for the root; or names, None for the root.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy; a tree where ``distance`` is "path".
        distance: "lca-height" or "path"; the root's height, or the label's level, for the root.
        reduction: "mean" over the rows with a label, or "none" for (N,), NaN without one.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    classes, targets = decisions(classes, targets, hierarchy)
    check_closed(targets, hierarchy)
    pairs = terminal_labels(targets, hierarchy)
    chosen = classes.cpu().numpy()[pairs[0]]
    values = distances(chosen, pairs[1], hierarchy, distance)
    costs = _smallest(values, pairs[0], len(classes))
    return reduce_rows(torch.from_numpy(costs).to(targets.device), reduction, "hierarchical cost")


def distances(a: Ints, b: Ints, hierarchy: Hierarchy, distance: Distance) -> NDArray[np.float64]:
    """Return the distance of each pair of class numbers; -1 is the root on either side."""
    check_distance(distance, hierarchy)
    at_root = (a < 0) | (b < 0)
    lcas = hierarchy.lcas(np.where(at_root, 0, a), np.where(at_root, 0, b))
    lcas = np.where(at_root, -1, lcas)
    if distance == "lca-height":
        heights = np.append(hierarchy.heights, hierarchy.root_height).astype(np.float64)
        return heights[lcas]
    levels = np.append(hierarchy.levels, 0).astype(np.float64)
    found: NDArray[np.float64] = levels[a] + levels[b] - 2 * levels[lcas]
    return found


def check_distance(distance: Distance, hierarchy: Hierarchy) -> None:
    """Raise for an unknown distance, and for paths in a DAG, where there are several."""
    check_option("distance", distance, Distance)
    if distance == "path" and not hierarchy.is_tree:
        raise HierlearnError(
            "distance 'path' needs a tree, but a class of this DAG has several parents; "
            "use 'lca-height'"
        )


def _smallest(values: NDArray[np.float64], rows: Ints, count: int) -> NDArray[np.float64]:
    """Return (N,) the smallest value of each row; ``rows`` ascends, absent rows are NaN."""
    found = np.full(count, np.nan)
    if len(rows):
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        found[rows[starts]] = np.minimum.reduceat(values, starts)
    return found


def _truth(
    reference: Reference, targets: Tensor, hierarchy: Hierarchy, annotated: Targets | None
) -> Tensor:
    """Return R as (N, C) bool."""
    if (annotated is not None) != (reference == "annotated"):
        verb = "needs" if annotated is None else "takes no"
        raise HierlearnError(f"reference {reference!r} {verb} annotated=, (N, C) multi-hot")
    if annotated is not None:
        annotated = as_targets(annotated, targets.shape, hierarchy, "annotated", "targets")
        annotated = annotated.to(targets.device)
        strange = (annotated & ~targets).nonzero()
        if len(strange):
            row, number = strange[0].tolist()
            raise HierlearnError(
                f"row {row}: {hierarchy.names[number]!r} is annotated but not among the targets"
            )
        return annotated
    return targets if reference == "closure" else most_specific(targets, hierarchy)
