"""Evaluate: the metrics of a pipeline on some rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.errors import HierlearnError
from hierlearn.metrics.measure import measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.pipeline.pipeline import Pipeline


def evaluate(
    pipeline: Pipeline, dataset: Dataset, metrics: Sequence[str] | None = None
) -> dict[str, float | list[float | None] | None]:
    """Return the metrics of a pipeline on the rows of a dataset.

    Args:
        pipeline: a trained pipeline.
        dataset: rows labeled by the pipeline's hierarchy.
        metrics: names of METRICS, each of which must be defined for these rows; by default those
            that are ``shown``, None where one is not defined.
    """
    from hierlearn.hierarchy.labels import Labels

    check_hierarchy(pipeline, dataset)
    if not len(dataset):
        raise HierlearnError("there are no rows to evaluate on")
    targets = Labels(dataset.labels, pipeline.hierarchy).targets()
    return measure(pipeline.probabilities(dataset.inputs), targets, pipeline.label_space, metrics)


def check_hierarchy(pipeline: Pipeline, dataset: Dataset) -> None:
    """Raise on rows that are labeled by another hierarchy than the model's."""
    if dataset.hierarchy != pipeline.hierarchy:
        raise HierlearnError(
            f"the rows are labeled by another hierarchy ({dataset.hierarchy!r}, fingerprint "
            f"{dataset.hierarchy.fingerprint[:12]}) than the model's ({pipeline.hierarchy!r}, "
            f"{pipeline.hierarchy.fingerprint[:12]}); read them with the model's hierarchy.json"
        )
