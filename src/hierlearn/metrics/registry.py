"""METRICS: every metric by name. The entries stand next to their functions, in the files below."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.metrics.metric import Metric
from hierlearn.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def as_metric(name: str, value: Any) -> Metric | None:
    """Return an imported metric, or function of scores, targets and label space, as an entry."""
    if isinstance(value, Metric):
        return value
    return Metric(name, value) if callable(value) else None


BUILT_IN: dict[str, Metric] = {
    metric.name: metric
    for file in FILES
    for metric in import_module(f"hierlearn.metrics.{file}").ENTRIES
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
