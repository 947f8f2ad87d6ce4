"""HierDist: how far in the hierarchy the prediction lies from the truth.

    d(c, r) = height of lca(c, r)                     "lca-height", the paper's
    d(c, r) = level(c) + level(r) - 2 level(lca(c, r))    "path", edges through the implicit root
    d(c)    = min over r in R of d(c, r)
    HierDist = mean over rows of d(c),    c the best-scored candidate

R is the truth of a row: all its positive classes ("closure"), the most specific ones ("terminal")
or what the data says ("annotated"). With "lca-height" a prediction that equals an inner class of R
still costs that class's height (``hits="height"``, as the paper defines it); ``hits="zero"`` makes
every member of R free. HierDist@k (Bertinetto et al., 2020) is the mean of d over the k best.

Of lca-height the nearest class of a closed set is always a terminal one: a common ancestor of c and
r is one of c and every t below r too, so lca(c, t) is no higher than lca(c, r).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from hierlearn.errors import HierlearnError
from hierlearn.metrics.choices import (
    Candidates,
    best_classes,
    candidate_classes,
    terminal_labels,
    terminal_mask,
)
from hierlearn.metrics.inputs import (
    Reduction,
    as_targets,
    check_closed,
    check_count,
    check_option,
    decisions,
    inputs,
    positives,
    reduce_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label
    from hierlearn.hierarchy.structure import Ints

Distance = Literal["lca-height", "path"]
Hits = Literal["height", "zero"]
Reference = Literal["closure", "terminal", "annotated"]


def hier_dist(
    scores: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    *,
    candidates: Candidates = "all",
    hits: Hits = "height",
    reference: Reference = "closure",
    distance: Distance = "lca-height",
    k: int = 1,
    terminals: Iterable[Label] | None = None,
    annotated: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the mean distance of the best-scored candidates from the truth.

    Args:
        scores: (N, C) floats, larger is more likely.
        targets: (N, C) closed multi-hot.
        hierarchy: the taxonomy; a tree where ``distance`` is "path".
        candidates: what may be answered: "all" classes (the paper), "terminal" ones or "leaves".
        hits: whether a prediction in R costs its own "height" or "zero".
        reference: what R is: the "closure", the "terminal" labels or the "annotated" ones.
        distance: "lca-height" or "path".
        k: how many of the best candidates are averaged.
        terminals: inner classes that are terminal, for candidates "terminal"; the leaves always
            are. By default those of these targets.
        annotated: (N, C) multi-hot, what the data says; needed by reference "annotated" alone.
        reduction: "mean" over the rows with a label, or "none" for (N,), NaN without one.
    """
    costs, _ = _costs(
        scores, targets, hierarchy, candidates, hits, reference, distance, k, terminals, annotated
    )
    return reduce_rows(costs, reduction, "HierDist")


def mistake_severity(
    scores: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    *,
    candidates: Candidates = "all",
    hits: Hits = "height",
    reference: Reference = "closure",
    distance: Distance = "lca-height",
    k: int = 1,
    terminals: Iterable[Label] | None = None,
    annotated: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return ``hier_dist`` over the rows whose best-scored candidate is not in R.

    Without any mistake there is no severity: the mean is NaN, since 0 would read as a distance. The
    arguments are those of ``hier_dist``; with k = 1 ``hits`` has no say, as no row here is a hit.
    ``reduction="none"`` gives (N,), NaN for hits and for rows without a label.
    """
    costs, right = _costs(
        scores, targets, hierarchy, candidates, hits, reference, distance, k, terminals, annotated
    )
    reduce_rows(costs, reduction, "mistake severity")  # refuses what has no label at all
    costs = costs.masked_fill(right, torch.nan)
    return costs if reduction == "none" else costs.nanmean()


def _costs(
    scores: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    candidates: Candidates,
    hits: Hits,
    reference: Reference,
    distance: Distance,
    k: int,
    terminals: Iterable[Label] | None,
    annotated: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return (N,) float64 distances, NaN without a label, and (N,) whether the best is in R."""
    check_option("hits", hits, Hits)
    check_distance(distance, hierarchy)
    scores, targets = inputs(scores, targets, hierarchy)
    numbers = candidate_classes(candidates, hierarchy, terminals, targets)
    check_count(k, len(numbers), "candidates")
    picks = best_classes(scores, numbers, k)  # (N, k)
    truth = _truth(reference, targets, hierarchy, annotated)
    costs = nearest(picks, truth, targets, reference, hierarchy, distance)
    inside = truth.gather(1, picks)
    if hits == "zero":
        costs = costs.masked_fill(inside, 0.0)
    return costs.mean(dim=1), inside[:, 0]


def hierarchical_cost(
    classes: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    distance: Distance = "lca-height",
    cost: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Return the mean cost of decisions: of each, the distance to the nearest terminal label.

    Args:
        classes: (N,) class numbers, -1 for the root.
        targets: (N, C) closed multi-hot.
        hierarchy: the taxonomy; a tree where ``distance`` is "path".
        distance: "lca-height" or "path"; the root's height, or the label's level, for the root.
        cost: costs of your own instead, (C, C) or (C + 1, C): row c is what deciding c costs for
            each truth, and a last row C + 1 what staying at the root costs.
        reduction: "mean" over the rows with a label, or "none" for (N,), NaN without one.
    """
    classes, targets = decisions(classes, targets, hierarchy)
    check_closed(targets, hierarchy)
    pairs = terminal_labels(targets, hierarchy)
    chosen = classes.cpu().numpy()[pairs[0]]
    if cost is None:
        values = distances(chosen, pairs[1], hierarchy, distance)
    else:
        table = _cost_table(cost, len(hierarchy), rooted=bool((classes == -1).any()))
        values = table[chosen, pairs[1]]
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
    """Refuse an unknown distance, and paths in a DAG, where there are several."""
    check_option("distance", distance, Distance)
    if distance == "path" and not hierarchy.is_tree:
        raise HierlearnError(
            "distance 'path' needs a tree, but a class of this DAG has several parents; "
            "use 'lca-height'"
        )


def nearest(
    picks: Tensor,
    truth: Tensor,
    targets: Tensor,
    reference: Reference,
    hierarchy: Hierarchy,
    distance: Distance,
) -> Tensor:
    """Return (N, k) float64 the distance of each pick to its row's truth, NaN without one."""
    if reference == "terminal" or (reference == "closure" and distance == "lca-height"):
        rows, numbers = terminal_labels(targets, hierarchy)  # see the module's last paragraph
    else:
        rows, numbers = positives(truth)
    chosen = picks.cpu().numpy()
    columns = [
        _smallest(distances(column[rows], numbers, hierarchy, distance), rows, len(chosen))
        for column in chosen.T
    ]
    return torch.from_numpy(np.stack(columns, axis=1)).to(picks.device)


def _smallest(values: NDArray[np.float64], rows: Ints, count: int) -> NDArray[np.float64]:
    """Return (N,) the smallest value of each row; ``rows`` ascends, absent rows are NaN."""
    found = np.full(count, np.nan)
    if len(rows):
        starts = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        found[rows[starts]] = np.minimum.reduceat(values, starts)
    return found


def _truth(
    reference: Reference, targets: Tensor, hierarchy: Hierarchy, annotated: Tensor | None
) -> Tensor:
    """Return R as (N, C) bool."""
    check_option("reference", reference, Reference)
    if (annotated is not None) != (reference == "annotated"):
        verb = "needs" if annotated is None else "takes no"
        raise HierlearnError(f"reference {reference!r} {verb} annotated, the (N, C) labels given")
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
    return targets if reference == "closure" else terminal_mask(targets, hierarchy)


def _cost_table(cost: Tensor, count: int, *, rooted: bool) -> NDArray[np.float64]:
    """Return costs as float64, the root in the last row."""
    shape = tuple(cost.shape)
    if shape not in ((count, count), (count + 1, count)):
        raise HierlearnError(f"cost {shape} must be ({count}, {count}) or ({count + 1}, {count})")
    if bool(cost.isnan().any()):
        raise HierlearnError("cost holds NaN")
    if rooted and shape[0] == count:
        raise HierlearnError(
            f"a decision stays at the root, for which cost {shape} has no row; give "
            f"({count + 1}, {count}), the root's costs last"
        )
    table: NDArray[np.float64] = cost.detach().cpu().double().numpy()
    return table
