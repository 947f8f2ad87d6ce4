"""Evaluate: the metrics of a model on some rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.decoding import end_scores
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.datasets import Dataset
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.training.model import Model

USUAL = (
    *("hit@1", "mrr", "hier-dist", "hier-dist-zero", "mistake-severity", "terminal-accuracy"),
    *("leaf-accuracy", "mean-level", "au-prc", "hier-f1", "level-accuracy", "calibration-error"),
    "coherence-violations",
)


def evaluate(
    model: Model, dataset: Dataset, metrics: Sequence[str] | None = None
) -> dict[str, float | list[float | None] | None]:
    """Return the metrics of a model on the rows of a dataset.

    Args:
        model: the model.
        dataset: rows labelled by the model's hierarchy.
        metrics: names of METRICS, refused where one is not defined for these rows; by default the
            usual ones, None where one is not defined.
    """
    from hierlearn.labels import Labels

    check_hierarchy(model, dataset)
    if not len(dataset):
        raise HierlearnError("there are no rows to evaluate on")
    targets = Labels(dataset.labels, model.hierarchy).targets()
    return measure(
        model.probabilities(dataset.inputs), targets, model.hierarchy, model.terminals, metrics
    )


def check_hierarchy(model: Model, dataset: Dataset) -> None:
    """Refuse rows that are labelled by another hierarchy than the model's."""
    if dataset.hierarchy != model.hierarchy:
        raise HierlearnError(
            f"the rows are labelled by another hierarchy ({dataset.hierarchy!r}, fingerprint "
            f"{dataset.hierarchy.fingerprint[:12]}) than the model's ({model.hierarchy!r}, "
            f"{model.hierarchy.fingerprint[:12]}); read them with the model's hierarchy.json"
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
    scores = end_scores(probabilities, hierarchy) if metric.of_terminals else probabilities
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
