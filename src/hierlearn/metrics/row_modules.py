"""torchmetrics classes of the metrics that are a mean over rows: a sum and a count are kept.

They are added over processes under torch.distributed, so that the mean is that of all rows however
unequally they are split.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
import torchmetrics
from torch import Tensor

from hierlearn.decoding.probabilities import check_fraction
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics import accuracy, ranking, sets
from hierlearn.metrics.coherence import check_tolerance, coherence_violations
from hierlearn.metrics.hier_dist import (
    CorrectCost,
    Distance,
    DistanceOptions,
    Reference,
    hier_dist,
    mistake_severity,
)
from hierlearn.metrics.inputs import is_integer, read_targets

if TYPE_CHECKING:
    from hierlearn.decoding.candidates import Candidates
    from hierlearn.metrics.inputs import Predicted, Scores, Space, Targets


class HierlearnMetric(torchmetrics.Metric):
    """Base of the classes: no gradient, and batches are added up independently.

    Args:
        label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.
        kwargs: options of torchmetrics.
    """

    is_differentiable = False
    full_state_update = False
    needs_label_space = True  # else it may be left out, and only labels as targets need it

    def __init__(self, label_space: Space | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if label_space is None and self.needs_label_space:
            raise HierlearnError(f"{type(self).__name__} needs a label space or a hierarchy")
        self.label_space = None if label_space is None else LabelSpace.of(label_space)

    @property
    def space(self) -> LabelSpace:
        """The label space, where there must be one."""
        assert self.label_space is not None
        return self.label_space

    def keep(self, name: str, *shape: int) -> None:
        """Add a state of float64 zeros that is summed over processes."""
        zeros = torch.zeros(shape, dtype=torch.float64)
        self.add_state(name, zeros, dist_reduce_fx="sum")


class RowMetric(HierlearnMetric):
    """A mean over the rows that count: subclasses give one value per row.

    Attributes:
        metric: its name in errors.
        need: what a row needs to count, in errors.
    """

    metric: str
    need: str = "a label"
    total: Tensor
    count: Tensor
    seen: Tensor

    def __init__(self, label_space: Space | None = None, **kwargs: Any) -> None:
        super().__init__(label_space, **kwargs)
        for name in ("total", "count", "seen"):
            self.keep(name)

    @abstractmethod
    def rows(self, *batch: Any, **options: Any) -> Tensor:
        """Return (N,) float64, NaN where a row does not count."""

    def update(self, scores: Scores, targets: Targets) -> None:
        """Add a batch of (N, C) scores and its targets."""
        self.add(self.rows(scores, targets))

    def add(self, rows: Tensor) -> None:
        """Add the values of some rows."""
        self.total += rows.nansum()
        self.count += (~rows.isnan()).sum()
        self.seen += len(rows)

    def compute(self) -> Tensor:
        """Return the mean over the rows that count."""
        if not bool(self.seen):
            raise HierlearnError(f"there are no rows: an empty test set has no {self.metric}")
        if not bool(self.count):
            raise HierlearnError(
                f"none of the {int(self.seen)} rows has {self.need}, so there is no {self.metric}"
            )
        return self.total / self.count


class HitAtK(RowMetric):
    """The fraction of rows with a positive class among the k best; see ``hit_at_k``."""

    higher_is_better = True
    needs_label_space = False

    def __init__(self, label_space: Space | None = None, *, k: int = 1, **kwargs: Any) -> None:
        super().__init__(label_space, **kwargs)
        if not is_integer(k) or k < 1:
            raise HierlearnError(f"k = {k!r} must be an integer of at least 1")
        self.k = k
        self.metric = f"hit@{k}"

    def rows(self, scores: Scores, targets: Targets) -> Tensor:
        """Return 1 where one of the k best is positive."""
        return ranking.hit_at_k(scores, targets, self.label_space, k=self.k, reduction="none")


class MeanReciprocalRank(RowMetric):
    """The mean of 1 / rank of the first positive class; see ``mean_reciprocal_rank``."""

    higher_is_better = True
    needs_label_space = False
    metric = "mean reciprocal rank"

    def rows(self, scores: Scores, targets: Targets) -> Tensor:
        """Return 1 / rank."""
        return ranking.mean_reciprocal_rank(scores, targets, self.label_space, reduction="none")


class Coverage(RowMetric):
    """How far down the ranking all positive classes lie; see ``coverage``."""

    higher_is_better = False
    needs_label_space = False
    metric = "coverage"

    def rows(self, scores: Scores, targets: Targets) -> Tensor:
        """Return the depth of each row."""
        return ranking.coverage(scores, targets, self.label_space, reduction="none")


class HierDist(RowMetric):
    """The distance of the prediction from the truth; see ``hier_dist`` for the options."""

    higher_is_better = False
    metric = "HierDist"

    def __init__(
        self,
        label_space: Space | None = None,
        *,
        candidates: Candidates = "all",
        correct_cost: CorrectCost = "height",
        reference: Reference = "closure",
        distance: Distance = "lca-height",
        k: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(label_space, **kwargs)
        self.options = DistanceOptions(candidates, correct_cost, reference, distance, k)
        self.options.candidate_numbers(self.space)  # raises for options that do not fit

    def update(self, scores: Scores, targets: Targets, annotated: Targets | None = None) -> None:
        """Add a batch; ``annotated`` goes with reference "annotated"."""
        self.add(self.rows(scores, targets, annotated))

    def rows(self, scores: Scores, targets: Targets, annotated: Targets | None = None) -> Tensor:
        """Return the distance of each row."""
        options = asdict(self.options)
        return hier_dist(
            scores, targets, self.space, **options, annotated=annotated, reduction="none"
        )


class MistakeSeverity(HierDist):
    """The distance over the mistakes only, NaN without one; see ``mistake_severity``."""

    metric = "mistake severity"
    labeled: Tensor

    def __init__(self, label_space: Space | None = None, **kwargs: Any) -> None:
        super().__init__(label_space, **kwargs)
        self.keep("labeled")

    def update(self, scores: Scores, targets: Targets, annotated: Targets | None = None) -> None:
        """Add a batch; ``annotated`` goes with reference "annotated"."""
        super().update(scores, targets, annotated)
        truth = read_targets(targets if annotated is None else annotated, self.space.hierarchy)
        self.labeled += (truth != 0).any(dim=1).sum()

    def rows(self, scores: Scores, targets: Targets, annotated: Targets | None = None) -> Tensor:
        """Return the distance of each mistake."""
        options = asdict(self.options)
        return mistake_severity(
            scores, targets, self.space, **options, annotated=annotated, reduction="none"
        )

    def compute(self) -> Tensor:
        """Return the mean over the mistakes, NaN without one."""
        if bool(self.labeled) and not bool(self.count):
            return torch.full_like(self.total, torch.nan)
        return super().compute()


class TerminalAccuracy(RowMetric):
    """Whether the best terminal class is a terminal label; see ``terminal_accuracy``."""

    higher_is_better = True
    metric = "terminal accuracy"

    def rows(self, scores: Scores, targets: Targets) -> Tensor:
        """Return 1 where it is right."""
        return accuracy.terminal_accuracy(scores, targets, self.space, reduction="none")


class LeafAccuracy(RowMetric):
    """Whether the best leaf is positive; see ``leaf_accuracy``."""

    higher_is_better = True
    metric = "leaf accuracy"
    need = "a leaf label"

    def rows(self, scores: Scores, targets: Targets) -> Tensor:
        """Return 1 where it is right."""
        return accuracy.leaf_accuracy(scores, targets, self.space, reduction="none")


class MeanPredictedLevel(RowMetric):
    """The mean level of the best class of all; see ``mean_predicted_level``."""

    higher_is_better = None
    metric = "mean level"

    def rows(self, scores: Scores, targets: Targets) -> Tensor:
        """Return the level of each row's best class."""
        return accuracy.mean_predicted_level(scores, targets, self.space, reduction="none")


class ExactMatch(RowMetric):
    """The fraction of rows whose set is the truth; see ``exact_match``.

    With a ``threshold`` it takes probabilities, and the sets are those of ``Coherent``.
    """

    higher_is_better = True
    metric = "exact match"

    def __init__(
        self,
        label_space: Space | None = None,
        *,
        threshold: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(label_space, **kwargs)
        self.threshold = None if threshold is None else check_fraction("threshold", threshold)

    def rows(self, predicted: Predicted, targets: Targets) -> Tensor:
        """Return 1 where the sets are equal."""
        return sets.exact_match(
            predicted, targets, self.space, threshold=self.threshold, reduction="none"
        )


class CoherenceViolations(RowMetric):
    """The edges per row whose child exceeds its parent; see ``coherence_violations``."""

    higher_is_better = False
    metric = "coherence violations"

    def __init__(
        self, label_space: Space | None = None, *, tolerance: float = 1e-6, **kwargs: Any
    ) -> None:
        super().__init__(label_space, **kwargs)
        check_tolerance(tolerance)
        self.tolerance = tolerance

    def update(self, probabilities: Scores, targets: Targets | None = None) -> None:  # noqa: ARG002
        """Add a batch of (N, C) probabilities; targets are not used."""
        self.add(self.rows(probabilities))

    def rows(self, probabilities: Scores) -> Tensor:
        """Return the violations of each row."""
        return coherence_violations(
            probabilities, self.space, tolerance=self.tolerance, reduction="none"
        )
