"""The metrics as torchmetrics classes: ``update(scores, targets)`` per batch, then ``compute()``.

Each gives the same number as a function of this stage. Between batches sums and counts are kept
(``row_modules`` has the means over rows); only average precision, and metrics without a class of
their own, must keep all scores. With those every process of a distributed run must call ``update``
at least once, if need be with no rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchmetrics.utilities import dim_zero_cat

from hierlearn.decoding.probabilities import check_fraction
from hierlearn.errors import HierlearnError
from hierlearn.metrics import accuracy, calibration, sets
from hierlearn.metrics.average_precision import Average, average_precision, clus_au_prc
from hierlearn.metrics.inputs import as_scores, as_targets, check_option, hierarchy_of, inputs
from hierlearn.metrics.row_modules import (
    CoherenceViolations,
    Coverage,
    ExactMatch,
    HierDist,
    HierlearnMetric,
    HitAtK,
    LeafAccuracy,
    MeanPredictedLevel,
    MeanReciprocalRank,
    MistakeSeverity,
    TerminalAccuracy,
)

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.metrics.average_precision import Classes
    from hierlearn.metrics.inputs import Predicted, Scores, Space, Targets
    from hierlearn.metrics.metric import Metric


class LevelAccuracy(HierlearnMetric):
    """Whether the best class of each level is positive, (L,); see ``level_accuracy``."""

    higher_is_better = True
    right: Tensor
    counts: Tensor

    def __init__(self, label_space: Space | None = None, **kwargs: Any) -> None:
        super().__init__(label_space, **kwargs)
        self.keep("right", self.space.hierarchy.depth)
        self.keep("counts", self.space.hierarchy.depth)

    def update(self, scores: Scores, targets: Targets) -> None:
        """Add a batch of (N, C) scores and its targets."""
        hierarchy = self.space.hierarchy
        right, counts = accuracy.level_hits(*inputs(scores, targets, hierarchy), hierarchy)
        self.right += right
        self.counts += counts

    def compute(self) -> Tensor:
        """Return (L,), NaN for a level without labels."""
        if not bool(self.counts.any()):
            raise HierlearnError("no row with a label was seen, so there is no level accuracy")
        return self.right / self.counts


class PooledMetric(HierlearnMetric):
    """A metric of all scores at once, which are kept until ``compute``."""

    needs_label_space = False
    scores: list[Tensor]  # tensors after a sync
    targets: list[Tensor]

    def __init__(self, label_space: Space | None = None, **kwargs: Any) -> None:
        super().__init__(label_space, **kwargs)
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("targets", [], dist_reduce_fx="cat")

    def update(self, scores: Scores, targets: Targets) -> None:
        """Keep a batch of (N, C) scores and its targets."""
        hierarchy = hierarchy_of(self.label_space)
        scores = as_scores(scores, hierarchy)
        self.scores.append(scores)
        self.targets.append(as_targets(targets, scores.shape, hierarchy))

    def all_rows(self) -> tuple[Tensor, Tensor]:
        """Return everything seen; after a sync the states are tensors already."""
        if not len(self.scores):
            raise HierlearnError("there are no rows: nothing was given to update")
        return dim_zero_cat(self.scores), dim_zero_cat(self.targets)


class AveragePrecision(PooledMetric):
    """Average precision; see ``average_precision``.

    With ``classes="evaluated"`` this is ``au_prc``.
    """

    higher_is_better = True

    def __init__(
        self,
        label_space: Space | None = None,
        *,
        average: Average = "micro",
        classes: Classes | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(label_space, **kwargs)
        check_option("average", average, Average)
        self.average = average
        self.classes = classes

    def compute(self) -> Tensor:
        """Return the average precision of everything seen."""
        return average_precision(
            *self.all_rows(), self.label_space, average=self.average, classes=self.classes
        )


class ClusAUPRC(PooledMetric):
    """Clus's area under the pooled precision-recall curve; see ``clus_au_prc``."""

    higher_is_better = True

    def __init__(
        self, label_space: Space | None = None, *, classes: Classes | None = None, **kwargs: Any
    ) -> None:
        super().__init__(label_space, **kwargs)
        self.classes = classes

    def compute(self) -> Tensor:
        """Return the area of everything seen."""
        return clus_au_prc(*self.all_rows(), self.label_space, classes=self.classes)


class FunctionMetric(PooledMetric):
    """A metric of METRICS that has only a function.

    Args:
        label_space: the taxonomy and its terminal classes.
        metric: the entry.
        kwargs: options of torchmetrics.
    """

    needs_label_space = True

    def __init__(self, label_space: Space, metric: Metric, **kwargs: Any) -> None:
        super().__init__(label_space, **kwargs)
        self.metric = metric

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Whether larger is better, None if neither is."""
        return {"up": True, "down": False, "none": None}[self.metric.direction]

    def compute(self) -> Tensor:
        """Return the metric of everything seen."""
        return self.metric(*self.all_rows(), self.space)


class SetMetric(HierlearnMetric):
    """Precision, recall or F of closed sets.

    Args:
        label_space: the taxonomy.
        average: "micro", "macro", "samples", or "level" for (L,).
        threshold: with a number, ``update`` takes probabilities and the sets are those of the
            decoder ``Coherent``; without, it takes sets, class numbers or labels.
        kwargs: options of torchmetrics.
    """

    higher_is_better = True
    measure: sets.Measure
    beta: float = 1.0
    both: Tensor
    answered: Tensor
    true: Tensor
    total: Tensor
    count: Tensor

    def __init__(
        self,
        label_space: Space | None = None,
        *,
        average: sets.Average = "micro",
        threshold: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(label_space, **kwargs)
        check_option("average", average, sets.Average)
        self.average = average
        self.threshold = None if threshold is None else check_fraction("threshold", threshold)
        for name in ("both", "answered", "true"):
            self.keep(name, len(self.space))
        for name in ("total", "count"):
            self.keep(name)

    def update(self, predicted: Predicted, targets: Targets) -> None:
        """Add a batch of answers, or of probabilities where there is a threshold, and targets."""
        answers, truth = sets.answered_sets(predicted, targets, self.space, self.threshold)
        for state, counts in zip(
            ("both", "answered", "true"), sets.class_counts(answers, truth), strict=True
        ):
            setattr(self, state, getattr(self, state) + counts)
        self.total += sets.row_ratios(answers, truth, self.measure, self.beta).sum()
        self.count += len(truth)

    def compute(self) -> Tensor:
        """Return the measure of everything seen."""
        if not bool(self.count):
            raise HierlearnError(f"there are no rows: an empty test set has no {self.measure}")
        if self.average == "samples":
            return self.total / self.count
        counts = (self.both, self.answered, self.true)
        return sets.averaged(counts, self.space.hierarchy, self.measure, self.average, self.beta)


class HierarchicalPrecision(SetMetric):
    """The fraction of what is answered that is true; see ``hierarchical_precision``."""

    measure = "precision"


class HierarchicalRecall(SetMetric):
    """The fraction of the truth that is answered; see ``hierarchical_recall``."""

    measure = "recall"


class HierarchicalF1(SetMetric):
    """The F measure; see ``hierarchical_f1``. Takes ``beta`` and the options of the others."""

    measure = "f"

    def __init__(
        self, label_space: Space | None = None, *, beta: float = 1.0, **options: Any
    ) -> None:
        super().__init__(label_space, **options)
        sets.check_beta(beta)
        self.beta = beta


class CalibrationError(HierlearnMetric):
    """The expected calibration error of each level, (L,), or pooled; see ``calibration_error``."""

    higher_is_better = False
    excess: Tensor
    counts: Tensor

    def __init__(
        self,
        label_space: Space | None = None,
        *,
        bins: int = 15,
        pooled: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(label_space, **kwargs)
        calibration.check_bins(bins)
        self.pooled = pooled
        self.keep("excess", self.space.hierarchy.depth, bins)
        self.keep("counts", self.space.hierarchy.depth, bins)

    def update(self, probabilities: Scores, targets: Targets) -> None:
        """Add a batch of (N, C) probabilities and its targets."""
        bins = self.excess.shape[1]
        excess, counts = calibration.bin_sums(probabilities, targets, self.space.hierarchy, bins)
        self.excess += excess
        self.counts += counts

    def compute(self) -> Tensor:
        """Return the error of each level, or of all."""
        if not bool(self.counts.any()):
            raise HierlearnError("there are no rows: an empty test set has no calibration error")
        return calibration.from_bins(self.excess, self.counts, self.pooled)


__all__ = [
    "AveragePrecision",
    "CalibrationError",
    "ClusAUPRC",
    "CoherenceViolations",
    "Coverage",
    "ExactMatch",
    "FunctionMetric",
    "HierDist",
    "HierarchicalF1",
    "HierarchicalPrecision",
    "HierarchicalRecall",
    "HierlearnMetric",
    "HitAtK",
    "LeafAccuracy",
    "LevelAccuracy",
    "MeanPredictedLevel",
    "MeanReciprocalRank",
    "MistakeSeverity",
    "TerminalAccuracy",
]
