"""Measure: metrics by name on node probabilities, the one place where predictions are evaluated.

A metric that is ``of_answers`` reads what a decoder answers. One that chooses among the terminal
classes reads ``terminal_scores``, the p of a class minus that of its children: by p alone an inner
class would always beat the classes below it.

Where entries are unknown, answers are compared on the known ones. Metrics of terminal classes leave
such rows out; others read the smallest score there, and leave out rows of which nothing is known.

METRICS: every metric by name. The entries stand next to their functions, in the files below.

Evaluation: figures by name, and how they are written wherever they are shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.decoding.probabilities import terminal_scores
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.accuracy import ENTRIES as ACCURACY
from hierlearn.metrics.accuracy import RANKING
from hierlearn.metrics.answers import ENTRIES as ANSWERS
from hierlearn.metrics.answers import Answers
from hierlearn.metrics.average_precision import ENTRIES as AVERAGE_PRECISION
from hierlearn.metrics.calibration import ENTRIES as CALIBRATION
from hierlearn.metrics.hier_dist import ENTRIES as HIER_DIST
from hierlearn.metrics.inputs import read_scores
from hierlearn.metrics.metric import Metric
from hierlearn.metrics.sets import ENTRIES as SETS
from hierlearn.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.metrics.inputs import Scores, Space, Targets

    Figures = Mapping[str, Any]


class Predictions(Answers):
    """Node probabilities with their targets, as metrics read them; made like ``Answers``."""

    def rows_of(self, metric: Metric) -> Tensor | None:
        """Return (N,) bool the rows that a metric of scores reads; None for all."""
        if self.mask is None:
            return None
        return self.mask.all(dim=1) if metric.of_terminals else self.mask.any(dim=1)

    def read(self, metric: Metric) -> tuple[Tensor, Tensor]:
        """Return what a metric of scores reads: p, or the terminal scores, and the targets."""
        key = "terminal" if metric.of_terminals else metric.takes
        if key not in self._read:
            p, targets, rows = self.p, self.targets, self.rows_of(metric)
            if self.mask is not None and rows is not None:
                lowest = -1.0 if metric.takes == "scores" else 0.0
                p, targets = p.masked_fill(~self.mask, lowest)[rows], targets[rows]
            self._read[key] = terminal_scores(p, self.space) if metric.of_terminals else p, targets
        return self._read[key]

    def value(self, metric: Metric) -> Tensor:
        """Return the metric."""
        if metric.of_answers:
            return metric.of(self)
        return metric(*self.read(metric), self.space)

    def figures(self, metrics: Sequence[str] | None = None) -> dict[str, Any]:
        """Return metrics by name; the argument is that of ``measure``."""
        chosen = metrics is not None and metrics != "all"
        found: dict[str, Any] = {}
        for name in names_of(metrics):
            metric = METRICS[name]
            try:
                check_supported(metric, self.space)
                value = self.value(metric)
            except HierlearnError:
                if chosen:
                    raise
                found[name] = None  # too few classes, or rows without a label
                continue
            many = metric.by_level
            found[name] = [plain(float(v)) for v in value] if many else plain(float(value))
        return found

    def rows(self, metric: Metric) -> NDArray[np.float64]:
        """Return (N,) the metric of each row."""
        metric.check_per_row()
        if metric.of_answers:
            found = metric.of(self, reduction="none")
        else:
            found = metric.rows(*self.read(metric), self.space)
        rows = None if metric.of_answers else self.rows_of(metric)
        if rows is not None:
            some, found = found, torch.full((len(self.p),), torch.nan, dtype=torch.float64)
            found[rows.cpu()] = some.cpu()
        return found.cpu().numpy().astype(np.float64)


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
    return Predictions(probabilities, targets, label_space, mask, decoder).figures(metrics)


def names_of(metrics: Sequence[str] | None) -> Sequence[str]:
    """Return the names of metrics, of those that are shown where none are named, or of "all"."""
    if metrics is None:
        return shown_metrics()
    return list(METRICS) if metrics == "all" else check_metrics(metrics)


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
    given = Predictions(probabilities, targets, label_space, mask, decoder)
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
        return Predictions(probabilities, targets, space, mask).value(metric)
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


# ---------------------------------------- registry


def as_metric(name: str, value: Any) -> Metric | None:
    """Return an imported metric, or function of scores, targets and label space, as an entry."""
    if isinstance(value, Metric):
        return value
    return Metric(name, value) if callable(value) else None


BUILT_IN: dict[str, Metric] = {
    metric.name: metric
    for entries in (
        ANSWERS,
        RANKING,
        HIER_DIST,
        ACCURACY,
        AVERAGE_PRECISION,
        SETS,
        CALIBRATION,
    )
    for metric in entries
}
METRICS = Registry(
    "metric",
    BUILT_IN,
    group="hierlearn.metrics",
    expected="a hierlearn.metrics.Metric or a function",
    read=as_metric,
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
