"""The metrics as torchmetrics classes: ``update(scores, targets)`` a batch, then ``compute()``.

Each is the twin of a function of this stage and gives the same number. Between batches sums and
counts are kept (``row_modules`` has the means over rows); only average precision must keep all
scores. There every process of a distributed run must be updated at least once, if need be with no
rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchmetrics.utilities import dim_zero_cat

from hierlearn.decoding.coherent import Coherent
from hierlearn.errors import HierlearnError
from hierlearn.metrics import accuracy, calibration, sets
from hierlearn.metrics.average_precision import Average, average_precision, clus_au_prc
from hierlearn.metrics.inputs import as_scores, as_targets, check_option
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

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.metrics.average_precision import Classes


class LevelAccuracy(HierlearnMetric):
    """Whether the best class of each level is positive, (L,); see ``level_accuracy``."""

    higher_is_better = True
    right: Tensor
    counts: Tensor

    def __init__(self, hierarchy: Hierarchy, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hierarchy = hierarchy
        self.keep("right", hierarchy.depth)
        self.keep("counts", hierarchy.depth)

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch of (N, C) scores and (N, C) targets."""
        right, counts = accuracy.level_hits(scores, targets, self.hierarchy)
        self.right += right
        self.counts += counts

    def compute(self) -> Tensor:
        """Return (L,), NaN for a level without labels."""
        if not bool(self.counts.any()):
            raise HierlearnError("no row with a label was seen, so there is no level accuracy")
        return self.right / self.counts


class PooledMetric(HierlearnMetric):
    """A metric of all scores at once, which are kept until ``compute``."""

    higher_is_better = True
    scores: list[Tensor]  # tensors after a sync
    targets: list[Tensor]

    def __init__(self, classes: Classes | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.classes = classes
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("targets", [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Keep a batch of (N, C) scores and (N, C) targets."""
        scores = as_scores(scores)
        self.scores.append(scores)
        self.targets.append(as_targets(targets, scores.shape))

    def all_rows(self) -> tuple[Tensor, Tensor]:
        """Return everything seen; after a sync the states are tensors already."""
        if not len(self.scores):
            raise HierlearnError("there are no rows: nothing was given to update")
        return dim_zero_cat(self.scores), dim_zero_cat(self.targets)


class AveragePrecision(PooledMetric):
    """Average precision; see ``average_precision``.

    With ``classes=evaluated_classes(hierarchy)`` this is ``au_prc``.
    """

    def __init__(
        self,
        average: Average = "micro",
        classes: Classes | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(classes, **kwargs)
        check_option("average", average, Average)
        self.average = average

    def compute(self) -> Tensor:
        """Return the average precision of everything seen."""
        return average_precision(*self.all_rows(), self.average, self.classes)


class ClusAUPRC(PooledMetric):
    """Clus's area under the pooled precision-recall curve; see ``clus_au_prc``."""

    def compute(self) -> Tensor:
        """Return the area of everything seen."""
        return clus_au_prc(*self.all_rows(), self.classes)


class SetMetric(HierlearnMetric):
    """Precision, recall or F of closed sets.

    Args:
        hierarchy: the taxonomy.
        average: "micro", "macro", "samples", or "level" for (L,).
        threshold: with a number, ``update`` takes probabilities and the sets are those of the
            decoder ``Coherent``; without, it takes sets or class numbers.
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
        hierarchy: Hierarchy,
        average: sets.Average = "micro",
        threshold: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_option("average", average, sets.Average)
        self.hierarchy = hierarchy
        self.average = average
        self.decoder = None if threshold is None else Coherent(hierarchy, threshold)
        for name in ("both", "answered", "true"):
            self.keep(name, len(hierarchy))
        for name in ("total", "count"):
            self.keep(name)

    def update(self, predicted: Tensor, targets: Tensor) -> None:
        """Add a batch of answers, or of probabilities where there is a threshold, and targets."""
        answers = predicted if self.decoder is None else self.decoder(predicted)
        answers, truth = sets.closed_sets(answers, targets, self.hierarchy)
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
        return sets.averaged(counts, self.hierarchy, self.measure, self.average, self.beta)


class HierarchicalPrecision(SetMetric):
    """The share of what is answered that is true; see ``hierarchical_precision``."""

    measure = "precision"


class HierarchicalRecall(SetMetric):
    """The share of the truth that is answered; see ``hierarchical_recall``."""

    measure = "recall"


class HierarchicalF1(SetMetric):
    """The F measure; see ``hierarchical_f1``. Takes ``beta`` beside the options of the others."""

    measure = "f"

    def __init__(
        self,
        hierarchy: Hierarchy,
        average: sets.Average = "micro",
        threshold: float | None = None,
        beta: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(hierarchy, average, threshold, **kwargs)
        sets.check_beta(beta)
        self.beta = beta


class CalibrationError(HierlearnMetric):
    """The expected calibration error of each level, (L,), or pooled; see ``calibration_error``."""

    higher_is_better = False
    excess: Tensor
    counts: Tensor

    def __init__(
        self, hierarchy: Hierarchy, bins: int = 15, pooled: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        calibration.check_bins(bins)
        self.hierarchy = hierarchy
        self.pooled = pooled
        self.keep("excess", hierarchy.depth, bins)
        self.keep("counts", hierarchy.depth, bins)

    def update(self, probabilities: Tensor, targets: Tensor) -> None:
        """Add a batch of (N, C) probabilities and (N, C) targets."""
        bins = self.excess.shape[1]
        excess, counts = calibration.bin_sums(probabilities, targets, self.hierarchy, bins)
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
