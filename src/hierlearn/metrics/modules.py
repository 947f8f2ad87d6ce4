"""The metrics as torchmetrics classes: ``update(scores, targets)`` per batch, then ``compute()``.

Each gives the same number as a function of this stage, and takes its options. Between batches sums
and counts are kept, and added over processes under torch.distributed, so that a mean is that of all
rows however unequally they are split. Only average precision, and metrics without a class of their
own, must keep all scores: with those every process must call ``update`` at least once, if need be
with no rows.
"""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torchmetrics
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from hierlearn.decoding.probabilities import check_fraction
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics import accuracy, calibration, sets
from hierlearn.metrics.average_precision import Average, average_precision, clus_au_prc
from hierlearn.metrics.hier_dist import DistanceOptions, hier_dist, mistake_severity
from hierlearn.metrics.inputs import (
    as_scores,
    as_targets,
    check_option,
    hierarchy_of,
    inputs,
    is_integer,
    read_targets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn.metrics.inputs import Predicted, Scores, Space, Targets
    from hierlearn.metrics.metric import Metric


class HierlearnMetric(torchmetrics.Metric):
    """Base of the classes: no gradient, and batches are added up independently.

    Args:
        label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.
        options: the keyword arguments of ``function``, and options of torchmetrics.
    """

    is_differentiable = False
    full_state_update = False
    needs_label_space = True  # else it may be left out, and only labels as targets need it
    function: ClassVar[Callable[..., Tensor] | None] = None  # the same for all rows at once

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        known = [] if self.function is None else [*signature(self.function).parameters.values()]
        own = {
            one.name: options.pop(one.name, one.default)
            for one in known
            if one.kind is Parameter.KEYWORD_ONLY and one.name not in ("reduction", "annotated")
        }
        super().__init__(**options)
        if label_space is None and self.needs_label_space:
            raise HierlearnError(f"{type(self).__name__} needs a label space or a hierarchy")
        self.label_space = None if label_space is None else LabelSpace.of(label_space)
        self.options = own
        if own.get("threshold") is not None:
            own["threshold"] = check_fraction("threshold", own["threshold"])

    @property
    def space(self) -> LabelSpace:
        """The label space, where there must be one."""
        assert self.label_space is not None
        return self.label_space

    def keep(self, name: str, *shape: int) -> None:
        """Add a state of float64 zeros that is summed over processes."""
        zeros = torch.zeros(shape, dtype=torch.float64)
        self.add_state(name, zeros, dist_reduce_fx="sum")


# ---------------------------------------- means over rows


class RowMetric(HierlearnMetric):
    """A mean over the rows that count.

    Attributes:
        metric: its name in errors.
        need: what a row needs to count, in errors.
    """

    metric: str
    need: str = "a label"
    total: Tensor
    count: Tensor
    seen: Tensor

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
        for name in ("total", "count", "seen"):
            self.keep(name)

    # Typed by what each metric takes: torchmetrics calls it with the arguments of its subclass.
    def update(self, *batch: Any, **more: Any) -> None:
        """Add a batch of (N, C) scores and its targets."""
        self.add(*batch, self.label_space, **more)

    def add(self, *batch: Any, **more: Any) -> None:
        """Add the values of some rows, NaN where a row does not count."""
        function: Any = type(self).function
        rows = function(*batch, **self.options, **more, reduction="none")
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
    function = staticmethod(accuracy.hit_at_k)

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
        k = self.options["k"]
        if not is_integer(k) or k < 1:
            raise HierlearnError(f"k = {k!r} must be an integer of at least 1")
        self.metric = f"hit@{k}"


class MeanReciprocalRank(RowMetric):
    """The mean of 1 / rank of the first positive class; see ``mean_reciprocal_rank``."""

    higher_is_better = True
    needs_label_space = False
    metric = "mean reciprocal rank"
    function = staticmethod(accuracy.mean_reciprocal_rank)


class Coverage(RowMetric):
    """How far down the ranking all positive classes lie; see ``coverage``."""

    higher_is_better = False
    needs_label_space = False
    metric = "coverage"
    function = staticmethod(accuracy.coverage)


class HierDist(RowMetric):
    """The distance of the prediction from the truth; see ``hier_dist`` for the options."""

    higher_is_better = False
    metric = "HierDist"
    function = staticmethod(hier_dist)

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
        DistanceOptions(**self.options).candidate_numbers(self.space)  # raises

    def update(self, scores: Scores, targets: Targets, annotated: Targets | None = None) -> None:
        """Add a batch; ``annotated`` goes with reference "annotated"."""
        self.add(scores, targets, self.space, annotated=annotated)


class MistakeSeverity(HierDist):
    """The distance over the mistakes only, NaN without one; see ``mistake_severity``."""

    metric = "mistake severity"
    function = staticmethod(mistake_severity)
    labeled: Tensor

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
        self.keep("labeled")

    def update(self, scores: Scores, targets: Targets, annotated: Targets | None = None) -> None:
        """Add a batch; ``annotated`` goes with reference "annotated"."""
        super().update(scores, targets, annotated)
        truth = read_targets(targets if annotated is None else annotated, self.space.hierarchy)
        self.labeled += (truth != 0).any(dim=1).sum()

    def compute(self) -> Tensor:
        """Return the mean over the mistakes, NaN without one."""
        if bool(self.labeled) and not bool(self.count):
            return torch.full_like(self.total, torch.nan)
        return super().compute()


class TerminalAccuracy(RowMetric):
    """Whether the best terminal class is a terminal label; see ``terminal_accuracy``."""

    higher_is_better = True
    metric = "terminal accuracy"
    function = staticmethod(accuracy.terminal_accuracy)


class LeafAccuracy(RowMetric):
    """Whether the best leaf is positive; see ``leaf_accuracy``."""

    higher_is_better = True
    metric = "leaf accuracy"
    need = "a leaf label"
    function = staticmethod(accuracy.leaf_accuracy)


class MeanPredictedLevel(RowMetric):
    """The mean level of the best class of all; see ``mean_predicted_level``."""

    higher_is_better = None
    metric = "mean level"
    function = staticmethod(accuracy.mean_predicted_level)


class ExactMatch(RowMetric):
    """The fraction of rows whose set is the truth; see ``exact_match``.

    With a ``threshold`` it takes probabilities, and the sets are those of ``Coherent``.
    """

    higher_is_better = True
    metric = "exact match"
    function = staticmethod(sets.exact_match)


class CoherenceViolations(RowMetric):
    """The edges per row whose child exceeds its parent; see ``coherence_violations``."""

    higher_is_better = False
    metric = "coherence violations"
    function = staticmethod(calibration.violations)

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
        calibration.check_tolerance(self.options["tolerance"])

    def update(self, probabilities: Scores, targets: Targets | None = None) -> None:  # noqa: ARG002
        """Add a batch of (N, C) probabilities; targets are not used."""
        self.add(probabilities, None, self.space)


# ---------------------------------------- other sums


class LevelAccuracy(HierlearnMetric):
    """Whether the best class of each level is positive, (L,); see ``level_accuracy``."""

    higher_is_better = True
    function = staticmethod(accuracy.level_accuracy)
    right: Tensor
    counts: Tensor

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
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


class SetMetric(HierlearnMetric):
    """Precision, recall or F of closed sets, micro, macro, per row or per level.

    With a ``threshold``, ``update`` takes probabilities and the sets are those of the decoder
    ``Coherent``; without, it takes sets, class numbers or labels.
    """

    higher_is_better = True
    measure: sets.Measure
    both: Tensor
    answered: Tensor
    true: Tensor
    total: Tensor
    count: Tensor

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
        check_option("average", self.options["average"], sets.Average)
        self.beta = self.options.get("beta", 1.0)
        sets.check_beta(self.beta)
        for name in ("both", "answered", "true"):
            self.keep(name, len(self.space))
        for name in ("total", "count"):
            self.keep(name)

    def update(self, predicted: Predicted, targets: Targets) -> None:
        """Add a batch of answers, or of probabilities where there is a threshold, and targets."""
        threshold = self.options["threshold"]
        answers, truth = sets.answered_sets(predicted, targets, self.space, threshold)
        both, answered, true = sets.class_counts(answers, truth)
        self.both, self.answered, self.true = (
            self.both + both,
            self.answered + answered,
            self.true + true,
        )
        self.total += sets.row_ratios(answers, truth, self.measure, self.beta).sum()
        self.count += len(truth)

    def compute(self) -> Tensor:
        """Return the measure of everything seen."""
        if not bool(self.count):
            raise HierlearnError(f"there are no rows: an empty test set has no {self.measure}")
        average = self.options["average"]
        if average == "samples":
            return self.total / self.count
        counts = (self.both, self.answered, self.true)
        return sets.averaged(counts, self.space.hierarchy, self.measure, average, self.beta)


class HierarchicalPrecision(SetMetric):
    """The fraction of what is answered that is true; see ``hierarchical_precision``."""

    measure = "precision"
    function = staticmethod(sets.hierarchical_precision)


class HierarchicalRecall(SetMetric):
    """The fraction of the truth that is answered; see ``hierarchical_recall``."""

    measure = "recall"
    function = staticmethod(sets.hierarchical_recall)


class HierarchicalF1(SetMetric):
    """The F measure; see ``hierarchical_f1``."""

    measure = "f"
    function = staticmethod(sets.hierarchical_f1)


class CalibrationError(HierlearnMetric):
    """The expected calibration error of each level, (L,), or pooled; see ``calibration_error``."""

    higher_is_better = False
    function = staticmethod(calibration.calibration_error)
    excess: Tensor
    counts: Tensor

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
        calibration.check_bins(self.options["bins"])
        self.keep("excess", self.space.hierarchy.depth, self.options["bins"])
        self.keep("counts", self.space.hierarchy.depth, self.options["bins"])

    def update(self, probabilities: Scores, targets: Targets) -> None:
        """Add a batch of (N, C) probabilities and its targets."""
        bins = self.options["bins"]
        excess, counts = calibration.bin_sums(probabilities, targets, self.space.hierarchy, bins)
        self.excess += excess
        self.counts += counts

    def compute(self) -> Tensor:
        """Return the error of each level, or of all."""
        if not bool(self.counts.any()):
            raise HierlearnError("there are no rows: an empty test set has no calibration error")
        return calibration.from_bins(self.excess, self.counts, self.options["pooled"])


# ---------------------------------------- all scores at once


class PooledMetric(HierlearnMetric):
    """A metric of all scores at once, which are kept until ``compute``."""

    needs_label_space = False
    scores: list[Tensor]  # tensors after a sync
    targets: list[Tensor]

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
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

    def compute(self) -> Tensor:
        """Return the metric of everything seen."""
        function: Any = type(self).function
        found: Tensor = function(*self.all_rows(), self.label_space, **self.options)
        return found


class AveragePrecision(PooledMetric):
    """Average precision; see ``average_precision``. With ``classes="evaluated"``, ``au_prc``."""

    higher_is_better = True
    function = staticmethod(average_precision)

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
        check_option("average", self.options["average"], Average)


class ClusAUPRC(PooledMetric):
    """Clus's area under the pooled precision-recall curve; see ``clus_au_prc``."""

    higher_is_better = True
    function = staticmethod(clus_au_prc)


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
