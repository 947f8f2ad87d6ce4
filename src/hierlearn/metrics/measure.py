"""Measure: metrics by name on node probabilities, the one place where predictions are evaluated.

A metric that chooses among the terminal classes reads ``terminal_scores``, the p of a class minus
that of its children: by p alone an inner class would always beat the classes below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.decoding.mass import terminal_scores
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.inputs import as_probabilities, as_targets, check_closed, read_scores
from hierlearn.metrics.registry import METRICS, check_metrics, find_metric, shown_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.metrics.inputs import Scores, Space, Targets
    from hierlearn.metrics.metric import Metric


class Predictions:
    """Checked node probabilities with their targets, as metrics read them.

    Args:
        probabilities: (N, C) node probabilities, or a ``HeadOutput``.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy and its terminal classes.
    """

    def __init__(self, probabilities: Scores, targets: Targets, label_space: Space) -> None:
        self.space = LabelSpace.of(label_space)
        hierarchy = self.space.hierarchy
        self.p = as_probabilities(probabilities, hierarchy)
        self.targets = as_targets(targets, self.p.shape, hierarchy, beside="probabilities")
        self.targets = self.targets.to(self.p.device)
        check_closed(self.targets, hierarchy)
        self._terminal: Tensor | None = None

    def scores(self, metric: Metric) -> Tensor:
        """Return what a metric reads: p, or the terminal scores."""
        if not metric.of_terminals:
            return self.p
        if self._terminal is None:
            self._terminal = terminal_scores(self.p, self.space)
        return self._terminal

    def value(self, metric: Metric) -> Tensor:
        """Return the metric."""
        return metric(self.scores(metric), self.targets, self.space)

    def rows(self, metric: Metric) -> NDArray[np.float64]:
        """Return (N,) the metric of each row."""
        found = metric.rows(self.scores(metric), self.targets, self.space)
        return found.cpu().numpy().astype(np.float64)


def measure(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    metrics: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return metrics by name, ready for JSON: a number, or one per level.

    Args:
        probabilities: (N, C) node probabilities, or a ``HeadOutput``.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.
        metrics: names of METRICS, each of which must be defined for these rows; by default those
            that are ``shown``, None where one is not defined.
    """
    given = Predictions(probabilities, targets, label_space)
    found: dict[str, Any] = {}
    for name in shown_metrics() if metrics is None else check_metrics(metrics):
        metric = METRICS[name]
        try:
            check_supported(metric, given.space)
            value = given.value(metric)
        except HierlearnError:
            if metrics is not None:
                raise
            found[name] = None  # too few classes, or rows without a label
            continue
        found[name] = [plain(float(v)) for v in value] if metric.by_level else plain(float(value))
    return found


def measure_rows(
    probabilities: Scores,
    targets: Targets,
    label_space: Space,
    metrics: Sequence[str] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Return (N,) the value of each row by name, NaN where a row does not count.

    Args:
        probabilities: (N, C) node probabilities, or a ``HeadOutput``.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy and its terminal classes; of a ``Hierarchy``, the leaves.
        metrics: names of METRICS that are ``per_row``; by default those that are ``shown`` and
            defined on the label space.
    """
    given = Predictions(probabilities, targets, label_space)
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


def compute(name: str, probabilities: Scores, targets: Targets, label_space: Space) -> Tensor:
    """Return one metric of probabilities, by name; the arguments are those of ``measure``."""
    metric, space = find_metric(name), LabelSpace.of(label_space)
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
