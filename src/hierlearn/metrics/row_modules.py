"""torchmetrics classes of the metrics that are a mean over rows: a sum and a count are kept.

They are added over processes under torch.distributed, so that the mean is that of all rows however
unequally they are shared out.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import torch
import torchmetrics
from torch import Tensor

from hierlearn.decoding.coherent import Coherent
from hierlearn.errors import HierlearnError
from hierlearn.metrics import accuracy, ranking, sets
from hierlearn.metrics.choices import Candidates, candidate_classes, terminal_classes
from hierlearn.metrics.coherence import check_tolerance, coherence_violations
from hierlearn.metrics.hier_dist import (
    Distance,
    Hits,
    Reference,
    check_distance,
    hier_dist,
    mistake_severity,
)
from hierlearn.metrics.inputs import check_count, check_option, is_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label


class HierlearnMetric(torchmetrics.Metric):
    """Base of the classes: no gradient, and batches are added up alone."""

    is_differentiable = False
    full_state_update = False

    def keep(self, name: str, *shape: int) -> None:
        """Add a state of float64 zeros that is summed over processes."""
        zeros = torch.zeros(shape, dtype=torch.float64)
        self.add_state(name, zeros, dist_reduce_fx="sum")


class RowMetric(HierlearnMetric):
    """A mean over the rows that count: subclasses give one value a row.

    Attributes:
        metric: its name in errors.
        need: what a row needs to count, in errors.
    """

    metric: str
    need: str = "a label"
    total: Tensor
    count: Tensor
    seen: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name in ("total", "count", "seen"):
            self.keep(name)

    @abstractmethod
    def rows(self, *batch: Any, **options: Any) -> Tensor:
        """Return (N,) float64, NaN where a row does not count."""

    def update(self, scores: Tensor, targets: Tensor) -> None:
        """Add a batch of (N, C) scores and (N, C) targets."""
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
    """The share of rows with a positive class among the k best; see ``hit_at_k``."""

    higher_is_better = True

    def __init__(self, k: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not is_whole(k) or k < 1:
            raise HierlearnError(f"k = {k!r} must be a whole number of at least 1")
        self.k = k
        self.metric = f"hit@{k}"

    def rows(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return 1 for a hit, 0 for a miss."""
        return ranking.hit_at_k(scores, targets, self.k, "none")


class MeanReciprocalRank(RowMetric):
    """The mean of 1 / rank of the first positive class; see ``mean_reciprocal_rank``."""

    higher_is_better = True
    metric = "mean reciprocal rank"

    def rows(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return 1 / rank."""
        return ranking.mean_reciprocal_rank(scores, targets, "none")


class Coverage(RowMetric):
    """How far down the ranking all positive classes lie; see ``coverage``."""

    higher_is_better = False
    metric = "coverage"

    def rows(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the depth of each row."""
        return ranking.coverage(scores, targets, "none")


class HierDist(RowMetric):
    """The distance of the prediction from the truth; see ``hier_dist`` for the options.

    ``terminals`` must be given for candidates "terminal": a batch does not show all of them.
    """

    higher_is_better = False
    metric = "HierDist"

    def __init__(
        self,
        hierarchy: Hierarchy,
        *,
        candidates: Candidates = "all",
        hits: Hits = "height",
        reference: Reference = "closure",
        distance: Distance = "lca-height",
        k: int = 1,
        terminals: Iterable[Label] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_option("candidates", candidates, Candidates)
        check_option("hits", hits, Hits)
        check_option("reference", reference, Reference)
        check_distance(distance, hierarchy)
        self.hierarchy = hierarchy
        self.options: dict[str, Any] = {
            "candidates": candidates,
            "hits": hits,
            "reference": reference,
            "distance": distance,
            "k": k,
        }
        if candidates == "terminal":
            self.options["terminals"] = given(terminals, hierarchy, self)
        allowed = candidate_classes(candidates, hierarchy, self.options.get("terminals"))
        check_count(k, len(allowed), "candidates")

    def update(self, scores: Tensor, targets: Tensor, annotated: Tensor | None = None) -> None:
        """Add a batch; ``annotated`` goes with reference "annotated"."""
        self.add(self.rows(scores, targets, annotated))

    def rows(self, scores: Tensor, targets: Tensor, annotated: Tensor | None = None) -> Tensor:
        """Return the distance of each row."""
        return hier_dist(
            scores, targets, self.hierarchy, **self.options, annotated=annotated, reduction="none"
        )


class MistakeSeverity(HierDist):
    """The distance over the mistakes alone, NaN without one; see ``mistake_severity``."""

    metric = "mistake severity"
    labeled: Tensor

    def __init__(self, hierarchy: Hierarchy, **kwargs: Any) -> None:
        super().__init__(hierarchy, **kwargs)
        self.keep("labeled")

    def update(self, scores: Tensor, targets: Tensor, annotated: Tensor | None = None) -> None:
        """Add a batch; ``annotated`` goes with reference "annotated"."""
        super().update(scores, targets, annotated)
        truth = targets if annotated is None else annotated
        self.labeled += (truth != 0).any(dim=1).sum()

    def rows(self, scores: Tensor, targets: Tensor, annotated: Tensor | None = None) -> Tensor:
        """Return the distance of each mistake."""
        return mistake_severity(
            scores, targets, self.hierarchy, **self.options, annotated=annotated, reduction="none"
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

    def __init__(
        self, hierarchy: Hierarchy, terminals: Iterable[Label] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.hierarchy = hierarchy
        self.terminals = given(terminals, hierarchy, self)

    def rows(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return 1 where it is right."""
        return accuracy.terminal_accuracy(scores, targets, self.hierarchy, self.terminals, "none")


class LeafAccuracy(RowMetric):
    """Whether the best leaf is positive; see ``leaf_accuracy``."""

    higher_is_better = True
    metric = "leaf accuracy"
    need = "a leaf label"

    def __init__(self, hierarchy: Hierarchy, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hierarchy = hierarchy

    def rows(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return 1 where it is right."""
        return accuracy.leaf_accuracy(scores, targets, self.hierarchy, "none")


class MeanPredictedLevel(RowMetric):
    """The mean level of the best class of all; see ``mean_predicted_level``."""

    higher_is_better = None
    metric = "mean level"

    def __init__(self, hierarchy: Hierarchy, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hierarchy = hierarchy

    def rows(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the level of each row's best class."""
        return accuracy.mean_predicted_level(scores, targets, self.hierarchy, "none")


class ExactMatch(RowMetric):
    """The share of rows whose set is the truth; see ``exact_match``.

    With a ``threshold`` it takes probabilities, and the sets are those of ``Coherent``.
    """

    higher_is_better = True
    metric = "exact match"

    def __init__(self, hierarchy: Hierarchy, threshold: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hierarchy = hierarchy
        self.decoder = None if threshold is None else Coherent(hierarchy, threshold)

    def rows(self, predicted: Tensor, targets: Tensor) -> Tensor:
        """Return 1 where the sets are equal."""
        answers = predicted if self.decoder is None else self.decoder(predicted)
        return sets.exact_match(answers, targets, self.hierarchy, "none")


class CoherenceViolations(RowMetric):
    """The number of edges a row whose child exceeds its parent; see ``coherence_violations``."""

    higher_is_better = False
    metric = "coherence violations"

    def __init__(self, hierarchy: Hierarchy, tolerance: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_tolerance(tolerance)
        self.hierarchy = hierarchy
        self.tolerance = tolerance

    def update(self, probabilities: Tensor, targets: Tensor | None = None) -> None:  # noqa: ARG002
        """Add a batch of (N, C) probabilities; targets are not used."""
        self.add(self.rows(probabilities))

    def rows(self, probabilities: Tensor) -> Tensor:
        """Return the violations of each row."""
        return coherence_violations(probabilities, self.hierarchy, self.tolerance, "none")


def given(terminals: Iterable[Label] | None, hierarchy: Hierarchy, metric: RowMetric) -> list[int]:
    """Return the terminal classes as numbers; refuse that they are left to the batches."""
    if terminals is None:
        raise HierlearnError(
            f"{type(metric).__name__} sees one batch at a time and cannot tell the terminal "
            f"classes from it; give terminals, such as Labels.terminal_classes"
        )
    numbers: list[int] = terminal_classes(hierarchy, terminals).tolist()
    return numbers
