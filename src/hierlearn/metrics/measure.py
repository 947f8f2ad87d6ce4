"""Measure: metrics by name on node probabilities, the one place where predictions are evaluated.

A metric that is ``of_answers`` reads what a decoder answers. One that chooses among the terminal
classes reads ``terminal_scores``, the p of a class minus that of its children: by p alone an inner
class would always beat the classes below it.

Where entries are unknown, answers are compared on the known ones. Metrics of terminal classes leave
such rows out; others read the smallest score there, and leave out rows of which nothing is known.

METRICS: every metric by name, with what tables, studies and sweeps need to know about it.

Evaluation: figures by name, and how they are written wherever they are shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from hierlearn.decoding.probabilities import terminal_scores
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics import accuracy, answers, calibration, sets
from hierlearn.metrics.answers import Answers
from hierlearn.metrics.average_precision import average_precision, clus_au_prc
from hierlearn.metrics.hier_dist import hier_dist, mistake_severity
from hierlearn.metrics.inputs import check_option, read_scores, read_targets
from hierlearn.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.metrics.inputs import Scores, Space, Targets
    from hierlearn.metrics.modules import HierlearnMetric

    Figures = Mapping[str, Any]

Direction = Literal["up", "down", "none"]
Takes = Literal["scores", "probabilities"]
Unit = Literal["percent", "levels", "edges", "rank", "count", "score"]


@dataclass(frozen=True)
class Metric:
    """A metric by name, called like every other: ``metric(scores, targets, label_space)``.

    A name and a function are enough: ``METRICS["mine"] = Metric("mine", my_function)``.

    Attributes:
        name: its name in METRICS.
        function: ``function(scores, targets, label_space, **options)`` gets (N, C) tensors and a
            ``LabelSpace``, and returns a number.
        description: what it is, in one sentence without a period; by default that of the
            function, whose docstring begins with "Return".
        direction: "up" if larger is better, "down" if smaller is, "none" if neither.
        unit: how it is shown: a fraction as "percent"; "levels" of the hierarchy, "edges", a
            "rank", a "count", or else a "score".
        options: fixed options of the function, and of the torchmetrics class.
        module_class: its torchmetrics class; by default the one of ``hierlearn.metrics.modules``
            with the same function.
        takes: "scores" of any kind, or "probabilities" in [0, 1].
        per_row: whether it is a mean over rows; the function then takes ``reduction="none"``.
        by_level: whether it gives (L,) instead of one number.
        of_terminals: whether it chooses among the terminal classes only.
        of_answers: whether it is about what a decoder answers: the function gets ``Answers``
            instead. Called with probabilities, these are the best terminal classes.
        needs_tree: whether a DAG raises an error.
        min_candidates: how many candidates it needs: classes, or terminal ones with
            ``of_terminals``.
        shown: whether it is measured where no metrics are named.
    """

    name: str
    function: Callable[..., Any]
    description: str = ""
    direction: Direction = "up"
    unit: Unit = "score"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    module_class: Callable[..., HierlearnMetric] | None = None
    takes: Takes = "scores"
    per_row: bool = False
    by_level: bool = False
    of_terminals: bool = False
    of_answers: bool = False
    needs_tree: bool = False
    min_candidates: int = 1
    shown: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise HierlearnError(f"metric {self.name}: {self.function!r} is not a function")
        if not self.description:
            sentence = (self.function.__doc__ or "").partition("\n")[0].rstrip(".")
            for prefix in ("Return ", "(L,) ", "the "):
                sentence = sentence.removeprefix(prefix)
            object.__setattr__(self, "description", sentence)
        check_option("direction", self.direction, Direction)
        check_option("unit", self.unit, Unit)
        check_option("takes", self.takes, Takes)
        if self.per_row and self.by_level:
            raise HierlearnError(f"metric {self.name} cannot be both per_row and by_level")

    def __call__(self, scores: Scores, targets: Targets, label_space: Space) -> Tensor:
        """Return the metric as a 0-dim float64 tensor, or (L,) where it is ``by_level``.

        Args:
            scores: (N, C) scores or probabilities, as ``takes`` says, or a ``HeadOutput``.
            targets: (N, C) closed multi-hot, or labels.
            label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.
        """
        return self._call(scores, targets, label_space)

    def rows(self, scores: Scores, targets: Targets, label_space: Space) -> Tensor:
        """Return (N,) float64 the value of each row, NaN where a row does not count.

        The arguments are those of a call.
        """
        self.check_per_row()
        return self._call(scores, targets, label_space, reduction="none")

    def check_per_row(self) -> None:
        """Raise unless each row has a value."""
        if not self.per_row:
            raise HierlearnError(f"{self.name} is not a mean over rows, so no row has a value")

    def _call(
        self, scores: Scores, targets: Targets, label_space: Space, **reduction: str
    ) -> Tensor:
        space = LabelSpace.of(label_space)
        if self.of_answers:
            return self.of(Answers(scores, targets, space), **reduction)
        read = read_scores(scores, space.hierarchy)
        truth = read_targets(targets, space.hierarchy).to(read.device)
        found = self.function(read, truth, space, **self.options, **reduction)
        return torch.as_tensor(found, dtype=torch.float64)

    def of(self, answers: Answers, **reduction: str) -> Tensor:
        """Return a metric ``of_answers``.

        Args:
            answers: answers and truth.
            reduction: ``reduction="none"`` for the value of each row.
        """
        found = self.function(answers, **self.options, **reduction)
        return torch.as_tensor(found, dtype=torch.float64)

    def unsupported_reason(self, label_space: Space) -> str | None:
        """Return why the metric is not defined on a label space, or None where it is."""
        space = LabelSpace.of(label_space)
        if self.needs_tree and not space.hierarchy.is_tree:
            return f"{self.name} needs a tree"
        count, what = len(space), "classes"
        if self.of_terminals:
            count, what = len(space.terminals), "terminal classes"
        if count < self.min_candidates:
            return f"{self.name} needs {self.min_candidates} {what}, but there are {count}"
        return None

    def module(self, label_space: Space) -> HierlearnMetric:
        """Return the torchmetrics class; without one of its own, one that keeps all scores."""
        from hierlearn.metrics import modules

        if self.module_class is not None:
            return self.module_class(label_space, **self.options)
        for one in vars(modules).values():
            if getattr(one, "function", None) is self.function:
                twin: HierlearnMetric = one(label_space, **self.options)
                return twin
        return modules.FunctionMetric(label_space, self)

    # ------------------------------------------------------------------ figures

    @property
    def scale(self) -> int:
        """What a value is multiplied by where it is shown: 100 for percent, else 1."""
        return 100 if self.unit == "percent" else 1

    def format(self, value: float | None, digits: int | None = None) -> str:
        """Return a value as text, "74.67" for percent, "1.250" otherwise; "n/a" without one.

        Args:
            value: the value, not scaled; None or NaN where there is none.
            digits: after the point; by default 2 for percent, else 3.
        """
        if value is None or math.isnan(value):
            return "n/a"
        if digits is None:
            digits = 2 if self.unit == "percent" else 3
        return f"{self.scale * value:.{digits}f}"


# ---------------------------------------- the registry


of_answers = partial(Metric, takes="probabilities", of_answers=True, shown=True)
fraction = partial(Metric, unit="percent", per_row=True)
distance = partial(Metric, direction="down", unit="levels", per_row=True)
of_sets = partial(Metric, options={"threshold": 0.5}, takes="probabilities")
ENTRIES: tuple[Metric, ...] = (
    of_answers("accuracy", answers.accuracy, unit="percent", by_level=True),
    of_answers("exact", answers.exact, unit="percent", per_row=True),
    of_answers("severity", answers.severity, direction="down", unit="levels", per_row=True),
    of_answers("f1", answers.f1),
    of_answers("calibration", answers.calibration, direction="down", unit="percent"),
    of_answers("answered", answers.answered, direction="none", unit="percent", per_row=True),
    of_answers("complete", answers.complete, direction="none", unit="percent", per_row=True),
    fraction("hit@1", accuracy.hit_at_k, "fraction of rows whose best class is positive"),
    fraction(
        "hit@5",
        accuracy.hit_at_k,
        "fraction of rows with a positive class among the 5 best",
        options={"k": 5},
        min_candidates=5,
    ),
    fraction("mrr", accuracy.mean_reciprocal_rank),
    Metric("coverage", accuracy.coverage, direction="down", unit="rank", per_row=True),
    distance(
        "hier-dist",
        hier_dist,
        "height of the lowest common ancestor of best class and truth, as the paper defines it",
    ),
    distance(
        "lca-height",
        hier_dist,
        "height of the lowest common ancestor over terminal classes, 0 where the best is correct",
        options={"candidates": "terminal", "correct_cost": "zero"},
        of_terminals=True,
    ),
    distance(
        "hier-dist-path",
        hier_dist,
        "edges between the best class and the nearest terminal label",
        unit="edges",
        options={"reference": "terminal", "distance": "path"},
        needs_tree=True,
    ),
    distance(
        "hier-dist@5",
        hier_dist,
        "height of the lowest common ancestor, mean of the 5 best terminal classes",
        options={"candidates": "terminal", "k": 5},
        of_terminals=True,
        min_candidates=5,
    ),
    distance(
        "mistake-severity",
        mistake_severity,
        "height of the lowest common ancestor over the mistakes only, NaN without one",
    ),
    fraction("terminal-accuracy", accuracy.terminal_accuracy, of_terminals=True),
    fraction("leaf-accuracy", accuracy.leaf_accuracy),
    Metric("level-accuracy", accuracy.level_accuracy, unit="percent", by_level=True),
    Metric(
        "mean-level", accuracy.mean_predicted_level, direction="none", unit="levels", per_row=True
    ),
    Metric(
        "ap-micro",
        average_precision,
        "average precision of all entries pooled",
        options={"average": "micro"},
    ),
    Metric(
        "ap-macro",
        average_precision,
        "average precision of each class, mean over the classes with a positive row",
        options={"average": "macro"},
    ),
    Metric(
        "au-prc",
        average_precision,
        "pooled average precision without the roots of the Gene Ontology, as C-HMCNN reports it",
        options={"classes": "evaluated"},
    ),
    Metric("clus-au-prc", clus_au_prc, options={"classes": "evaluated"}),
    of_sets(
        "hier-precision",
        sets.hierarchical_precision,
        "fraction of the classes with p >= 0.5, closed, that are true",
    ),
    of_sets(
        "hier-recall",
        sets.hierarchical_recall,
        "fraction of the true classes that are among those with p >= 0.5, closed",
    ),
    of_sets("hier-f1", sets.hierarchical_f1, "harmonic mean of hier-precision and hier-recall"),
    of_sets(
        "exact-match",
        sets.exact_match,
        "fraction of rows whose classes with p >= 0.5, closed, are exactly the truth",
        unit="percent",
        per_row=True,
    ),
    Metric(
        "calibration-error",
        calibration.calibration_error,
        direction="down",
        takes="probabilities",
        by_level=True,
    ),
    Metric(
        "coherence-violations",
        calibration.violations,
        direction="down",
        unit="count",
        takes="probabilities",
        per_row=True,
    ),
)
METRICS = Registry(
    "metric",
    {metric.name: metric for metric in ENTRIES},
    group="hierlearn.metrics",
    expected="a hierlearn.metrics.Metric or a function",
    read=lambda name, one: (
        one if isinstance(one, Metric) else Metric(name, one) if callable(one) else None
    ),
)


def find_metric(name: str) -> Metric:
    """Return a metric by name; raise for an unknown one, naming the known."""
    return METRICS[name]


def check_metrics(names: Sequence[str]) -> Sequence[str]:
    """Return the names of metrics; raise for an unknown one and for none at all."""
    if not names:
        raise HierlearnError("no metric is named; name at least one")
    for name in names:
        find_metric(name)
    return names


def shown_metrics() -> list[str]:
    """Return the names of the metrics that are measured where none are named."""
    return [name for name, metric in METRICS.loaded.items() if metric.shown]


# ---------------------------------------- measuring


def measure(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    metrics: Sequence[str] | None = None,
    *,
    mask: Tensor | None = None,
    decoder: Decoder | str | None = None,
) -> dict[str, Any]:
    """Return metrics by name, ready for JSON: a number, or one per level.

    Args:
        probabilities: (N, C) node probabilities, or a ``HeadOutput``.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.
        metrics: names of METRICS, each of which must be defined for these rows; by default those
            that are ``shown``, "all" for every one, None where one is not defined.
        mask: (N, C) which targets are known, as ``Labels.mask`` returns; None for all.
        decoder: how the model answers; by default the best terminal class.
    """
    return figures(Answers(probabilities, targets, label_space, mask, decoder), metrics)


def figures(answers: Answers, metrics: Sequence[str] | None = None) -> dict[str, Any]:
    """Return metrics by name; the argument is that of ``measure``."""
    chosen = metrics is not None and metrics != "all"
    if not chosen:
        metrics = shown_metrics() if metrics is None else list(METRICS)
    found: dict[str, Any] = {}
    for name in check_metrics(metrics or ()):
        metric = METRICS[name]
        try:
            check_supported(metric, answers.space)
            value = answers.value(metric)
        except HierlearnError:
            if chosen:
                raise
            found[name] = None  # too few classes, or rows without a label
            continue
        many = metric.by_level
        found[name] = [plain(float(v)) for v in value] if many else plain(float(value))
    return found


def measure_rows(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    metrics: Sequence[str] | None = None,
    *,
    mask: Tensor | None = None,
    decoder: Decoder | str | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Return (N,) the value of each row by name, NaN where a row does not count.

    Args:
        probabilities: (N, C) node probabilities, or a ``HeadOutput``.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.
        metrics: names of METRICS that are ``per_row``; by default those that are ``shown`` and
            defined on the label space.
        mask: (N, C) which targets are known; None for all.
        decoder: how the model answers; by default the best terminal class.
    """
    given = Answers(probabilities, targets, label_space, mask, decoder)
    if metrics is None:
        metrics = [
            name
            for name in shown_metrics()
            if METRICS[name].per_row and METRICS[name].unsupported_reason(given.space) is None
        ]
    else:
        for name in check_metrics(metrics):
            check_supported(METRICS[name], given.space)
    return {name: given.rows(METRICS[name]) for name in metrics}


def compute(
    name: str,
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    mask: Tensor | None = None,
) -> Tensor:
    """Return one metric of probabilities, by name; the arguments are those of ``measure``."""
    metric, space = find_metric(name), LabelSpace.of(label_space)
    if mask is not None:
        return Answers(probabilities, targets, space, mask).value(metric)
    p = read_scores(probabilities, space.hierarchy, "probabilities")
    return metric(terminal_scores(p, space) if metric.of_terminals else p, targets, space)


def check_supported(metric: Metric, label_space: LabelSpace) -> None:
    """Raise where a metric is not defined on a label space."""
    reason = metric.unsupported_reason(label_space)
    if reason is not None:
        raise HierlearnError(reason)


def plain(value: float) -> float | None:
    """Return a figure, or None for NaN, which JSON does not know."""
    return None if value != value else value


# ---------------------------------------- evaluation

BETTER = {"up": "higher", "down": "lower", "none": ""}
STOPPING = ("answered", "complete")  # nothing to say where all rows are


class Evaluation(dict[str, Any]):
    """Figures by name, as ``measure`` returns them: a dict that prints as a table.

    Args:
        figures: by name of METRICS: a number, a list with one per level, or None.
    """

    def __str__(self) -> str:
        found = [(label, texts[0], better) for label, better, texts in figure_lines([self])]
        lines = [("metric", "value", "better"), *found]
        name, value = (max(len(line[column]) for line in lines) for column in (0, 1))
        return "\n".join(f"{a:<{name}}  {b:>{value}}  {c}".rstrip() for a, b, c in lines)

    __repr__ = __str__


def shown(name: str, value: float | None) -> str:
    """Return a figure as it is written everywhere: "67.44 %", "1.880"; "n/a" without one."""
    metric = METRICS.get(name)
    if metric is None or value is None or value != value:
        return "n/a" if value is None or value != value else f"{value:.4g}"
    return f"{metric.format(value)}{' %' if metric.unit == 'percent' else ''}"


def figure_lines(
    columns: Sequence[Figures], levels: Sequence[str] = (), *, every: bool = False
) -> list[tuple[str, str, list[str]]]:
    """Return the lines of a table: name, better direction and one figure per column.

    Args:
        columns: figures by name.
        levels: what to call each level; by default by number.
        every: also write what says nothing, since every row is answered and completely so.
    """
    found = []
    for name in dict.fromkeys(name for one in columns for name in one):
        values = [one.get(name) for one in columns]
        if not every and name in STOPPING and all(value == 1 for value in values):
            continue
        better = BETTER[METRICS[name].direction] if name in METRICS else ""
        depth = max((len(value) for value in values if isinstance(value, list)), default=0)
        if not depth:
            found.append((name, better, [shown(name, value) for value in values]))
        for place in range(depth):
            level = levels[place] if levels else str(place + 1)
            here = [None if value is None else value[place] for value in values]
            text = [shown(name, value) for value in here]
            found.append((f"{name}, level {level}", better, text))
    return found
