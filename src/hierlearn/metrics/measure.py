"""Measure: metrics by name on probabilities, the one judge of predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.decoding import terminal_scores
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.metrics.registry import METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy

USUAL = (
    *("hit@1", "mrr", "hier-dist", "lca-height", "mistake-severity", "terminal-accuracy"),
    *("leaf-accuracy", "mean-level", "au-prc", "hier-f1", "level-accuracy", "calibration-error"),
    "coherence-violations",
)


def measure(
    probabilities: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    terminals: Sequence[int],
    metrics: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return metrics by name, ready for JSON: None where a figure is not defined."""
    found: dict[str, Any] = {}
    for name in USUAL if metrics is None else check_metrics(metrics):
        metric = METRICS[name]
        refusal = metric.refusal(hierarchy, terminals)
        if refusal is not None and metrics is not None:
            raise HierlearnError(refusal)
        try:
            value = compute(name, probabilities, targets, hierarchy, terminals)
        except HierlearnError:
            if metrics is not None:
                raise
            found[name] = None  # rows without a label, or without one on a leaf
            continue
        found[name] = [plain(float(v)) for v in value] if metric.by_level else plain(float(value))
    return found


def compute(
    name: str,
    probabilities: Tensor,
    targets: Tensor,
    hierarchy: Hierarchy,
    terminals: Sequence[int] | None,
) -> Tensor:
    """Return a metric of probabilities; among terminal classes, of what ends at each."""
    metric = METRICS[name]
    scores = terminal_scores(probabilities, hierarchy) if metric.of_terminals else probabilities
    return metric(scores, targets, hierarchy, terminals=terminals)


def check_metrics(names: Sequence[str]) -> Sequence[str]:
    """Return the names of metrics, or refuse one that does not exist."""
    if not names:
        raise HierlearnError("no metric is named; name at least one")
    for name in names:
        if name not in METRICS:
            raise HierlearnError(unknown_name("metric", name, METRICS))
    return names


def plain(value: float) -> float | None:
    """Return a figure, or None for NaN, which JSON does not know."""
    return None if value != value else value
