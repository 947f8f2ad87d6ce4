"""METRICS: every metric by name, called alike, with what a table or a sweep must know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hierlearn.decoding.coherent import Coherent
from hierlearn.metrics import accuracy, ranking, sets
from hierlearn.metrics.average_precision import (
    au_prc,
    average_precision,
    clus_au_prc,
    evaluated_classes,
)
from hierlearn.metrics.calibration import calibration_error
from hierlearn.metrics.coherence import coherence_violations
from hierlearn.metrics.hier_dist import hier_dist, mistake_severity
from hierlearn.metrics.inputs import as_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label
    from hierlearn.metrics.modules import HierlearnMetric

    Terminals = Iterable[Label] | None

Direction = Literal["up", "down", "none"]
Takes = Literal["scores", "probabilities"]
THRESHOLD = 0.5  # of the sets behind hier-precision, hier-recall, hier-f1 and exact-match


@dataclass(frozen=True)
class Metric:
    """One entry of METRICS: ``metric(scores, targets, hierarchy, terminals=None)``.

    Attributes:
        name: its name in METRICS.
        describe: what it is, in one sentence.
        direction: "up" where larger is better, "down" where smaller is, "none" where neither is.
        function: the uniform call: (scores, targets, hierarchy, terminals).
        twin: the name of its torchmetrics class, and ``options`` its arguments.
        limits: the least and the largest value on a hierarchy.
        takes: "scores" of any kind, or "probabilities" in [0, 1].
        by_level: whether it gives (L,) instead of one number.
        needs_tree: whether a DAG is refused.
        least: how many candidates it needs: classes, or terminal ones with ``of_terminals``.
        of_terminals: whether it chooses among the terminal classes alone.
    """

    name: str
    describe: str
    direction: Direction
    function: Callable[[Tensor, Tensor, Hierarchy, Terminals], Tensor]
    twin: str
    options: Callable[[Hierarchy, Terminals], dict[str, Any]]
    limits: Callable[[Hierarchy], tuple[float, float]]
    takes: Takes = "scores"
    by_level: bool = False
    needs_tree: bool = False
    least: int = 1
    of_terminals: bool = False

    def __call__(
        self, scores: Tensor, targets: Tensor, hierarchy: Hierarchy, terminals: Terminals = None
    ) -> Tensor:
        """Return the metric as a 0-dim float64 tensor, or (L,) where it is ``by_level``.

        Args:
            scores: (N, C) scores or probabilities, as ``takes`` says.
            targets: (N, C) closed multi-hot.
            hierarchy: the taxonomy.
            terminals: inner classes that are terminal; by default those of these targets.
        """
        return self.function(scores, targets, hierarchy, terminals)

    def bounds(self, hierarchy: Hierarchy) -> tuple[float, float]:
        """Return the least and the largest value on a hierarchy."""
        return self.limits(hierarchy)

    def module(self, hierarchy: Hierarchy, terminals: Terminals = None) -> HierlearnMetric:
        """Return the torchmetrics twin; metrics of terminal classes need ``terminals``."""
        from hierlearn.metrics import modules

        made: HierlearnMetric = getattr(modules, self.twin)(**self.options(hierarchy, terminals))
        return made

    def refusal(self, hierarchy: Hierarchy, terminals: Terminals = None) -> str | None:
        """Return why the metric is not defined on a hierarchy, or None where it is."""
        if self.needs_tree and not hierarchy.is_tree:
            return f"{self.name} needs a tree"
        count, what = len(hierarchy), "classes"
        if self.of_terminals:
            named = {hierarchy.index(label) for label in terminals or ()}
            count, what = len(named.union(hierarchy.leaves.tolist())), "terminal classes"
        if count < self.least:
            return f"{self.name} needs {self.least} {what}, but there are {count}"
        return None


def _share(_: Hierarchy) -> tuple[float, float]:
    return 0.0, 1.0


def _heights(hierarchy: Hierarchy) -> tuple[float, float]:
    return 0.0, float(hierarchy.root_height)


def _hit(k: int) -> Metric:
    return Metric(
        f"hit@{k}",
        "share of rows with a positive class first"
        if k == 1
        else f"share of rows with a positive class among the {k} best",
        "up",
        lambda s, t, h, _: ranking.hit_at_k(_fit(s, h), t, k),
        "HitAtK",
        lambda _h, _t: {"k": k},
        _share,
        least=k,
    )


def _distance(name: str, describe: str, run: Callable[..., Tensor], **options: Any) -> Metric:
    """Return an entry of ``hier_dist`` or ``mistake_severity`` with some options fixed."""
    of_terminals = options.get("candidates") == "terminal"
    is_path = options.get("distance") == "path"

    def arguments(terminals: Terminals) -> dict[str, Any]:
        return {**options, "terminals": terminals} if of_terminals else options

    return Metric(
        name,
        describe,
        "down",
        lambda s, t, h, terminals: run(s, t, h, **arguments(terminals)),
        "HierDist" if run is hier_dist else "MistakeSeverity",
        lambda h, terminals: {"hierarchy": h, **arguments(terminals)},
        (lambda h: (0.0, 2.0 * h.depth)) if is_path else _heights,
        needs_tree=is_path,
        least=options.get("k", 1),
        of_terminals=of_terminals,
    )


def _of_sets(name: str, describe: str, run: Callable[..., Tensor], twin: str) -> Metric:
    """Return an entry that scores the sets of the decoder ``Coherent``."""
    return Metric(
        name,
        describe,
        "up",
        lambda p, t, h, _: run(Coherent(h, THRESHOLD)(p), t, h),
        twin,
        lambda h, _: {"hierarchy": h, "threshold": THRESHOLD},
        _share,
        takes="probabilities",
    )


def _fit(scores: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return scores whose columns are the classes of the hierarchy; refuse others."""
    return as_scores(scores, hierarchy)


def _with(hierarchy: Hierarchy, _: Terminals) -> dict[str, Any]:
    return {"hierarchy": hierarchy}


def _evaluated(hierarchy: Hierarchy, _: Terminals) -> dict[str, Any]:
    return {"classes": evaluated_classes(hierarchy)}


def _clus(scores: Tensor, targets: Tensor, hierarchy: Hierarchy, _: Terminals) -> Tensor:
    classes = evaluated_classes(hierarchy)
    return clus_au_prc(_fit(scores, hierarchy), targets, classes)


_ENTRIES = (
    _hit(1),
    _hit(5),
    Metric(
        "mrr",
        "mean of 1 / rank of the first positive class",
        "up",
        lambda s, t, h, _: ranking.mean_reciprocal_rank(_fit(s, h), t),
        "MeanReciprocalRank",
        lambda _h, _t: {},
        _share,
    ),
    Metric(
        "coverage",
        "how far down the ranking all positive classes lie",
        "down",
        lambda s, t, h, _: ranking.coverage(_fit(s, h), t),
        "Coverage",
        lambda _h, _t: {},
        lambda h: (1.0, float(len(h))),
    ),
    _distance(
        "hier-dist",
        "height of the lowest common ancestor of best class and truth, as the paper defines it",
        hier_dist,
    ),
    _distance(
        "lca-height",
        "the same over terminal classes, a hit costing nothing",
        hier_dist,
        candidates="terminal",
        hits="zero",
    ),
    _distance(
        "hier-dist-path",
        "edges between the best class and the nearest terminal label",
        hier_dist,
        reference="terminal",
        distance="path",
    ),
    _distance(
        "hier-dist@5",
        "height of the lowest common ancestor, mean of the 5 best terminal classes",
        hier_dist,
        candidates="terminal",
        k=5,
    ),
    _distance(
        "mistake-severity",
        "height of the lowest common ancestor over the mistakes alone, NaN without one",
        mistake_severity,
    ),
    Metric(
        "terminal-accuracy",
        "share of rows whose best terminal class is one of their terminal labels",
        "up",
        accuracy.terminal_accuracy,
        "TerminalAccuracy",
        lambda h, terminals: {"hierarchy": h, "terminals": terminals},
        _share,
        of_terminals=True,
    ),
    Metric(
        "leaf-accuracy",
        "share of rows whose best leaf is positive, of those with a leaf label",
        "up",
        lambda s, t, h, _: accuracy.leaf_accuracy(s, t, h),
        "LeafAccuracy",
        _with,
        _share,
    ),
    Metric(
        "level-accuracy",
        "share of rows whose best class of a level is positive, of those with a label there",
        "up",
        lambda s, t, h, _: accuracy.level_accuracy(s, t, h),
        "LevelAccuracy",
        _with,
        _share,
        by_level=True,
    ),
    Metric(
        "mean-level",
        "mean level of the best class: how specific the answers are, right or wrong",
        "none",
        lambda s, t, h, _: accuracy.mean_predicted_level(s, t, h),
        "MeanPredictedLevel",
        _with,
        lambda h: (1.0, float(h.depth)),
    ),
    Metric(
        "ap-micro",
        "average precision of all entries pooled",
        "up",
        lambda s, t, h, _: average_precision(_fit(s, h), t, "micro"),
        "AveragePrecision",
        lambda _h, _t: {"average": "micro"},
        _share,
    ),
    Metric(
        "ap-macro",
        "average precision of each class, mean over the classes with a positive row",
        "up",
        lambda s, t, h, _: average_precision(_fit(s, h), t, "macro"),
        "AveragePrecision",
        lambda _h, _t: {"average": "macro"},
        _share,
    ),
    Metric(
        "au-prc",
        "pooled average precision without the roots of the Gene Ontology, as C-HMCNN reports it",
        "up",
        lambda s, t, h, _: au_prc(s, t, h),
        "AveragePrecision",
        _evaluated,
        _share,
    ),
    Metric(
        "clus-au-prc",
        "area under the pooled precision-recall curve, interpolated as Clus does",
        "up",
        _clus,
        "ClusAUPRC",
        _evaluated,
        _share,
    ),
    _of_sets(
        "hier-precision",
        "share of the classes with p >= 0.5, closed, that are true",
        sets.hierarchical_precision,
        "HierarchicalPrecision",
    ),
    _of_sets(
        "hier-recall",
        "share of the true classes that are among those with p >= 0.5, closed",
        sets.hierarchical_recall,
        "HierarchicalRecall",
    ),
    _of_sets(
        "hier-f1",
        "harmonic mean of hier-precision and hier-recall",
        sets.hierarchical_f1,
        "HierarchicalF1",
    ),
    _of_sets(
        "exact-match",
        "share of rows whose classes with p >= 0.5, closed, are exactly the truth",
        sets.exact_match,
        "ExactMatch",
    ),
    Metric(
        "calibration-error",
        "expected calibration error of each level",
        "down",
        lambda p, t, h, _: calibration_error(p, t, h),
        "CalibrationError",
        _with,
        _share,
        takes="probabilities",
        by_level=True,
    ),
    Metric(
        "coherence-violations",
        "edges a row whose child is more probable than its parent",
        "down",
        lambda p, _t, h, _: coherence_violations(p, h),
        "CoherenceViolations",
        _with,
        lambda h: (0.0, float(len(h.structure.parent_ids))),
        takes="probabilities",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _ENTRIES}
