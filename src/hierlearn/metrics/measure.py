"""Measure: metrics by name on node probabilities, the one place where predictions are evaluated.

A metric that is ``of_answers`` reads what a decoder answers. One that chooses among the terminal
classes reads ``terminal_scores``, the p of a class minus that of its children: by p alone an inner
class would always beat the classes below it.

Where entries are unknown, answers are compared on the known ones. Metrics of terminal classes leave
such rows out; others read the smallest score there, and leave out rows of which nothing is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.decoding.mass import terminal_scores
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.answers import Answers
from hierlearn.metrics.inputs import as_probabilities, as_targets, check_closed, inside, read_scores
from hierlearn.metrics.registry import METRICS, check_metrics, find_metric, shown_metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.metrics.inputs import Scores, Space, Targets
    from hierlearn.metrics.metric import Metric


class Predictions:
    """Checked node probabilities with their targets, as metrics read them.

    Args:
        probabilities: (N, C) node probabilities, or a ``HeadOutput``.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy and its terminal classes.
        mask: (N, C) which targets are known; None for all.
        decoder: how the model answers; by default the best terminal class.
    """

    def __init__(
        self,
        probabilities: Scores,
        targets: Targets,
        label_space: Space,
        mask: Tensor | None = None,
        decoder: Decoder | str | None = None,
    ) -> None:
        self.space = LabelSpace.of(label_space)
        hierarchy = self.space.hierarchy
        self.p = as_probabilities(probabilities, hierarchy)
        self.targets = as_targets(targets, self.p.shape, hierarchy, beside="probabilities")
        self.targets = self.targets.to(self.p.device)
        check_closed(self.targets, hierarchy)
        self.mask, self.decoder = inside(mask, self.p), decoder
        self._answers: Answers | None = None
        self._read: dict[str, tuple[Tensor, Tensor]] = {}

    @property
    def answers(self) -> Answers:
        """What is answered."""
        if self._answers is None:
            self._answers = Answers(self.p, self.targets, self.space, self.mask, self.decoder)
        return self._answers

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
            return metric.of(self.answers)
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
            found = metric.of(self.answers, reduction="none")
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
