"""Evaluate: the metrics of a model on some rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.measure import measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.pipeline.pipeline import Pipeline


def evaluate(
    model: Pipeline, dataset: Dataset, metrics: Sequence[str] | None = None
) -> dict[str, float | list[float | None] | None]:
    """Return the metrics of a model on the rows of a dataset.

    Args:
        model: the model.
        dataset: rows labeled by the model's hierarchy.
        metrics: names of METRICS, refused where one is not defined for these rows; by default the
            usual ones, None where one is not defined.
    """
    from hierlearn.hierarchy.labels import Labels

    check_hierarchy(model, dataset)
    if not len(dataset):
        raise HierlearnError("there are no rows to evaluate on")
    targets = Labels(dataset.labels, model.hierarchy).targets()
    space = LabelSpace(model.hierarchy, model.terminals)
    return measure(model.probabilities(dataset.inputs), targets, space, metrics)


def check_hierarchy(model: Pipeline, dataset: Dataset) -> None:
    """Refuse rows that are labeled by another hierarchy than the model's."""
    if dataset.hierarchy != model.hierarchy:
        raise HierlearnError(
            f"the rows are labeled by another hierarchy ({dataset.hierarchy!r}, fingerprint "
            f"{dataset.hierarchy.fingerprint[:12]}) than the model's ({model.hierarchy!r}, "
            f"{model.hierarchy.fingerprint[:12]}); read them with the model's hierarchy.json"
        )
