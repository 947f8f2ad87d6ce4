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

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics import accuracy, calibration, sets
from hierlearn.metrics.average_precision import Average, average_precision, clus_au_prc
from hierlearn.metrics.hier_dist import hier_dist, mistake_severity
from hierlearn.metrics.inputs import (
    as_scores,
    as_targets,
    check_option,
    check_rows,
    hierarchy_of,
    is_integer,
    read_targets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hierlearn.metrics.inputs import Predicted, Scores, Space, Targets
    from hierlearn.metrics.measure import Metric

PER_BATCH = ("reduction", "annotated", "mistakes_only")  # arguments that are not options


class HierlearnMetric(torchmetrics.Metric):
    """Base of the classes: no gradient, and batches are added up independently.

    Args:
        label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.
        options: the keyword arguments of ``function``, and options of torchmetrics.
    """

    is_differentiable = False
    full_state_update = False
    higher_is_better: bool | None = True
    needs_label_space = True  # else it may be left out, and only labels as targets need it
    function: Callable[..., Tensor]  # the same for all rows at once
    options_from: ClassVar[Callable[..., Tensor] | None] = None  # where not from ``function``

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        self.options = {}
        for name, one in signature(self.options_from or self.function).parameters.items():
            if one.kind is Parameter.KEYWORD_ONLY and name not in PER_BATCH:
                self.options[name] = options.pop(name, one.default)
        super().__init__(**options)
        if label_space is None and self.needs_label_space:
            raise HierlearnError(f"{type(self).__name__} needs a label space or a hierarchy")
        self.label_space = None if label_space is None else LabelSpace.of(label_space)

    @property
    def space(self) -> LabelSpace:
        """The label space, where there must be one."""
        assert self.label_space is not None
        return self.label_space


# ---------------------------------------- sums over rows


class SumMetric(HierlearnMetric):
    """A metric that is computed from sums over rows, which add up over batches and processes."""

    totals: Tensor

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
        # The sums of no rows have the shape of all others, and raise for options that do not fit.
        columns = self.options.get("k", 1) if self.label_space is None else len(self.space)
        zeros = self.sums(torch.zeros(0, columns), torch.zeros(0, columns, dtype=torch.bool))
        self.add_state("totals", zeros, dist_reduce_fx="sum")

    def sums(self, *batch: Any) -> Tensor:
        """Return the sums of a batch in float64, whatever they are."""
        raise NotImplementedError

    # Typed by what each metric takes: torchmetrics calls it with the arguments of its subclass.
    def update(self, *batch: Any, **more: Any) -> None:
        """Add a batch of (N, C) scores and its targets."""
        self.totals = self.totals + self.sums(*batch, **more)


class RowMetric(SumMetric):
    """A mean over the rows that count.

    Attributes:
        metric: its name in errors.
        need: what a row needs to count, in errors.
    """

    metric: str
    need: str = "a label"

    def sums(self, *batch: Any, **more: Any) -> Tensor:
        """Return the sum of the values, the number of rows that count, and that of all."""
        rows = self.function(*batch, self.label_space, **self.options, **more, reduction="none")
        counts = (~rows.isnan()).sum(), rows.new_tensor(len(rows))
        return torch.stack([rows.nansum(), *counts]).double()

    def compute(self) -> Tensor:
        """Return the mean over the rows that count."""
        total, count, seen = self.totals[:3].unbind()
        check_rows(int(seen), self.metric)
        if not bool(count):
            raise HierlearnError(
                f"none of the {int(seen)} rows has {self.need}, so there is no {self.metric}"
            )
        return total / count


class HitAtK(RowMetric):
    """The fraction of rows with a positive class among the k best; see ``hit_at_k``."""

    needs_label_space = False
    function = staticmethod(accuracy.hit_at_k)

    def __init__(self, label_space: Space | None = None, *, k: int = 1, **options: Any) -> None:
        if not is_integer(k) or k < 1:
            raise HierlearnError(f"k = {k!r} must be an integer of at least 1")
        super().__init__(label_space, k=k, **options)
        self.metric = f"hit@{k}"


class MeanReciprocalRank(RowMetric):
    """The mean of 1 / rank of the first positive class; see ``mean_reciprocal_rank``."""

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
    """The distance of the prediction from the truth; see ``hier_dist`` for the options.

    With reference "annotated" ``update`` takes the annotated labels as its third argument.
    """

    higher_is_better = False
    metric = "HierDist"
    function = staticmethod(hier_dist)

    def sums(self, scores: Scores, targets: Any, annotated: Any = None) -> Tensor:
        """Return the sums of a batch; ``annotated`` goes with reference "annotated"."""
        if self.options["reference"] == "annotated" and not len(targets):
            annotated = targets  # of no rows
        return super().sums(scores, targets, annotated=annotated)


class MistakeSeverity(HierDist):
    """The distance over the mistakes only, NaN without one; see ``mistake_severity``."""

    metric = "mistake severity"
    function = staticmethod(mistake_severity)
    options_from = staticmethod(hier_dist)

    def sums(self, scores: Scores, targets: Any, annotated: Any = None) -> Tensor:
        """Return the sums of a batch, and the number of rows with a label."""
        found = super().sums(scores, targets, annotated)
        truth = read_targets(targets if annotated is None else annotated, self.space.hierarchy)
        return torch.cat([found, (truth != 0).any(dim=1).sum().to(found)[None]])

    def compute(self) -> Tensor:
        """Return the mean over the mistakes, NaN without one."""
        _, mistakes, _, labeled = self.totals.unbind()
        if bool(labeled) and not bool(mistakes):
            return torch.full_like(labeled, torch.nan)
        return super().compute()


class TerminalAccuracy(RowMetric):
    """Whether the best terminal class is a terminal label; see ``terminal_accuracy``."""

    metric = "terminal accuracy"
    function = staticmethod(accuracy.terminal_accuracy)


class LeafAccuracy(RowMetric):
    """Whether the best leaf is positive; see ``leaf_accuracy``."""

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

    metric = "exact match"
    function = staticmethod(sets.exact_match)


class CoherenceViolations(RowMetric):
    """The edges per row whose child exceeds its parent; see ``coherence_violations``.

    ``update`` takes (N, C) probabilities; targets may be given, and are not used.
    """

    higher_is_better = False
    metric = "coherence violations"
    function = staticmethod(calibration.violations)

    def sums(self, probabilities: Scores, targets: Targets | None = None) -> Tensor:
        """Return the sums of a batch."""
        return super().sums(probabilities, targets)


class LevelAccuracy(SumMetric):
    """Whether the best class of each level is positive, (L,); see ``level_accuracy``."""

    function = staticmethod(accuracy.level_accuracy)

    def sums(self, scores: Scores, targets: Targets) -> Tensor:
        """Return the rows that are right, labeled, and seen at each level."""
        return accuracy.level_sums(scores, targets, self.space)

    def compute(self) -> Tensor:
        """Return (L,), NaN for a level without labels."""
        return accuracy.level_value(self.totals)


class SetMetric(SumMetric):
    """Precision, recall or F of closed sets, micro, macro, per row or per level.

    With a ``threshold``, ``update`` takes probabilities and the sets are those of the decoder
    ``Coherent``; without, it takes sets, class numbers or labels.
    """

    measure: sets.Measure

    def sums(self, predicted: Predicted, targets: Targets) -> Tensor:
        """Return the counts of a batch."""
        return sets.set_sums(self.measure, predicted, targets, self.space, **self.options)

    def compute(self) -> Tensor:
        """Return the measure of everything seen."""
        average, beta = self.options["average"], self.options.get("beta", 1.0)
        return sets.set_value(self.measure, self.totals, average, beta)


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


class CalibrationError(SumMetric):
    """The expected calibration error of each level, (L,), or pooled; see ``calibration_error``."""

    higher_is_better = False
    function = staticmethod(calibration.calibration_error)

    def sums(self, probabilities: Scores, targets: Targets) -> Tensor:
        """Return the sums of the bins."""
        return calibration.bin_sums(probabilities, targets, self.space, bins=self.options["bins"])

    def compute(self) -> Tensor:
        """Return the error of each level, or of all."""
        return calibration.bin_value(self.totals, pooled=self.options["pooled"])


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

    def compute(self) -> Tensor:
        """Return the metric of everything seen; after a sync the states are tensors already."""
        if not len(self.scores):
            raise HierlearnError("there are no rows: nothing was given to update")
        rows = dim_zero_cat(self.scores), dim_zero_cat(self.targets)
        return self.function(*rows, self.label_space, **self.options)


class AveragePrecision(PooledMetric):
    """Average precision; see ``average_precision``. With ``classes="evaluated"``, ``au_prc``."""

    function = staticmethod(average_precision)

    def __init__(self, label_space: Space | None = None, **options: Any) -> None:
        super().__init__(label_space, **options)
        check_option("average", self.options["average"], Average)


class ClusAUPRC(PooledMetric):
    """Clus's area under the pooled precision-recall curve; see ``clus_au_prc``."""

    function = staticmethod(clus_au_prc)


class FunctionMetric(PooledMetric):
    """A metric of METRICS that has only a function.

    Args:
        label_space: the taxonomy and its terminal classes.
        metric: the entry.
        options: options of torchmetrics.
    """

    needs_label_space = True

    def __init__(self, label_space: Space, metric: Metric, **options: Any) -> None:
        self.function = self.metric = metric
        super().__init__(label_space, **options)

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Whether larger is better, None if neither is."""
        return {"up": True, "down": False, "none": None}[self.metric.direction]
