"""Estimator: fits any scikit-learn classifier to prepared rows; see ``networks/estimator.py``.

Rows whose label is not terminal, under partial labels, say nothing to a flat estimator and are left
out of it; per parent and per level they are used as far down as they go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierlearnError, arg
from hierlearn.networks.estimator import ROOT, Part, as_array, families
from hierlearn.training.seeding import derive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.networks.estimator import EstimatorHead
    from hierlearn.training.rows import Rows

    Ints = NDArray[np.int64]


def fit_head(head: EstimatorHead, rows: Rows, seed: int) -> None:
    """Fit the estimators of a head.

    Args:
        head: what they are for.
        rows: the training rows.
        seed: for what they draw.
    """
    if rows.streamed:
        raise HierlearnError("an estimator reads rows in memory, not streams; leave stream out")
    labels, space = rows.labels, head.label_space
    x = as_array(rows.inputs)
    weights = None if rows.weights is None else rows.weights.double().cpu().numpy()
    if head.strategy == "per-class":
        targets = labels.targets().numpy()
        known = np.ones_like(targets) if not rows.is_partial else labels.mask().numpy()
        yes_no = [
            Fit(head, x, weights, derive(seed, "estimator", number)).part(
                targets[:, number].astype(np.int64), known[:, number], number
            )
            for number in range(len(space))
        ]
        head.set(yes_no)
        return
    if (labels.terminal_counts > 1).any() or not labels.terminal_counts.all():
        raise HierlearnError(
            f"rows have several labels, or none, so {arg('strategy')} must be per-class, not "
            f"{head.strategy}"
        )
    last = labels.terminal[1]  # (N,) the most specific class of each row
    ends = np.asarray(space.is_terminal)[last] | (not rows.is_partial)  # nothing lies below
    fit = Fit(head, x, weights, derive(seed, "estimator"))
    if head.strategy == "flat":
        head.set([fit.part(last, ends)])
        return
    path = paths_of(labels, space.hierarchy.depth)  # (N, L) the class at each level, or -1
    if head.strategy == "per-level":
        parts = []
        for level in range(space.hierarchy.depth):
            there = path[:, level] >= 0
            parts.append(fit.part(np.where(there, path[:, level], last), there | ends, level))
        head.set(parts)
        return
    parts = []
    for parent, members in families(space).items():
        level = 0 if parent == ROOT else int(space.hierarchy.levels[parent])
        inside = np.full(len(last), True) if parent == ROOT else path[:, level - 1] == parent
        below = path[:, level] >= 0 if level < path.shape[1] else np.zeros(len(last), dtype=bool)
        choice = np.where(below, path[:, min(level, path.shape[1] - 1)], last)
        found = fit.part(choice, inside & (below | ends), parent)
        parts.append(found if len(found.classes) else Part(None, members, parent))
    head.set(parts)


class Fit:
    """Fits copies of the base of a head to some of its rows."""

    def __init__(self, head: EstimatorHead, x: Any, weights: Any, seed: int) -> None:
        self.head, self.x, self.weights, self.seed = head, x, weights, seed

    def part(self, classes: Ints, where: Any = None, at: int = ROOT) -> Part:
        """Return the estimator of the classes of some rows.

        Args:
            classes: (N,) what each row is.
            where: (N,) bool which rows count; None for all.
            at: see Part.
        """
        from sklearn.utils.validation import has_fit_parameter

        rows = np.arange(len(classes)) if where is None else np.flatnonzero(where)
        found, numbers = np.unique(classes[rows], return_inverse=True)
        if len(found) < 2:
            return Part(None, found, at)
        model, given = self.head.make(), {}
        if "random_state" in model.get_params() and model.get_params()["random_state"] is None:
            model.set_params(random_state=self.seed % (1 << 31))
        if self.weights is not None:
            if not has_fit_parameter(model, "sample_weight"):
                raise HierlearnError(
                    f"{type(model).__name__} takes no weights of rows; leave them out"
                )
            given["sample_weight"] = self.weights[rows]
        try:
            model.fit(self.x[rows], numbers, **given)
        except (ValueError, TypeError) as error:
            raise HierlearnError(f"{type(model).__name__} cannot be fitted: {error}") from error
        return Part(model, found, at)


def paths_of(labels: Any, depth: int) -> Ints:
    """Return (N, L) the class of each row at every level, -1 below its label; trees, one label."""
    offsets, classes = labels.closed
    rows = np.repeat(np.arange(len(labels)), np.diff(offsets))
    found = np.full((len(labels), depth), -1, dtype=np.int64)
    found[rows, labels.hierarchy.levels[classes] - 1] = classes
    return found
