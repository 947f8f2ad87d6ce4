"""METRICS: every metric by name. The entries stand next to their functions, in the files below."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.metrics.metric import Metric

FILES = (
    "answers",
    "ranking",
    "hier_dist",
    "accuracy",
    "average_precision",
    "sets",
    "calibration",
    "coherence",
    "cafa",
)

METRICS: dict[str, Metric] = {
    metric.name: metric
    for file in FILES
    for metric in import_module(f"hierlearn.metrics.{file}").ENTRIES
}


def find_metric(name: str) -> Metric:
    """Return a metric by name; raise for an unknown one, naming the known."""
    if name not in METRICS:
        raise HierlearnError(unknown_name("metric", str(name), METRICS))
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
    return [name for name, metric in METRICS.items() if metric.shown]
