"""Evaluate: the metrics of a pipeline on some rows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeAlias

from hierlearn.datasets.dataset import row_names
from hierlearn.errors import DataError, HierlearnError, plural, shorten
from hierlearn.metrics.measure import measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.datasets import Dataset
    from hierlearn.pipeline.pipeline import Pipeline

    Figures: TypeAlias = dict[str, float | list[float | None] | None]


class EvaluationWarning(UserWarning):
    """A model was trained, and the rows that were held out cannot be evaluated."""


def evaluate(pipeline: Pipeline, dataset: Dataset, metrics: Sequence[str] | None = None) -> Figures:
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
    p = pipeline.probabilities(dataset.inputs)
    check_finite(p, dataset)
    return measure(p, targets, pipeline.label_space, metrics)


def evaluate_after_training(pipeline: Pipeline, dataset: Dataset, which: str) -> Figures | None:
    """Return the metrics of rows that were held out, or None with a warning where that fails.

    A model is kept even if it cannot be evaluated.

    Args:
        pipeline: a pipeline that was just trained.
        dataset: the rows.
        which: the name of their split.
    """
    try:
        return evaluate(pipeline, dataset)
    except Exception as error:
        known = isinstance(error, HierlearnError)
        reason = str(error) if known else f"{type(error).__name__}: {' '.join(str(error).split())}"
        message = f"the model is trained, but its {which} rows cannot be evaluated: {reason}"
        warnings.warn(EvaluationWarning(shorten(message)), stacklevel=3)
        return None


def check_finite(p: Tensor, dataset: Dataset) -> None:
    """Raise on rows whose probabilities are NaN, and name the first of them."""
    wrong = p.isnan().any(dim=1).nonzero()[:, 0]
    if not len(wrong):
        return
    first, names = int(wrong[0]), row_names(dataset)
    name = "" if names is None else f" ({shorten(names[first], 80, 20)})"
    raise DataError(
        f"the probabilities of {plural(len(wrong), 'row')} of {len(p):,} are NaN, the first of row "
        f"{first}{name}; check the inputs of these rows, or leave them out"
    )


def check_hierarchy(pipeline: Pipeline, dataset: Dataset) -> None:
    """Raise on rows that are labeled by another hierarchy than the model's."""
    if dataset.hierarchy != pipeline.hierarchy:
        raise HierlearnError(
            f"the rows are labeled by another hierarchy ({dataset.hierarchy!r}, fingerprint "
            f"{dataset.hierarchy.fingerprint[:12]}) than the model's ({pipeline.hierarchy!r}, "
            f"{pipeline.hierarchy.fingerprint[:12]}); read them with the model's hierarchy.json"
        )
