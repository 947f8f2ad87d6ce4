"""Evaluate: what a pipeline is worth on labeled rows. Whatever shows figures gets them here.

The answers are those that ``predict`` writes: of the same probabilities, by the same decoder. Rows
count as in training: entries that ``unlabeled_descendants="ignore"`` leaves open are neither right
nor wrong, except below a label that the taxonomy lacks, where every known class is wrong.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

from hierlearn.datasets.dataset import row_names
from hierlearn.errors import DataError, HierlearnError, plural, shorten
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics.answers import Answers
from hierlearn.metrics.measure import figures

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from torch import Tensor

    from hierlearn.datasets import Dataset
    from hierlearn.decoding import Decoder
    from hierlearn.hierarchy.labels import UnlabeledDescendants
    from hierlearn.pipeline.pipeline import Pipeline

    Figures: TypeAlias = dict[str, float | list[float | None] | None]


class EvaluationWarning(UserWarning):
    """A model was trained, and the rows that were held out cannot be evaluated."""


def evaluate(
    pipeline: Pipeline,
    dataset: Dataset,
    metrics: Sequence[str] | None = None,
    *,
    decoder: Decoder | None = None,
) -> Figures:
    """Return the metrics of a pipeline on the rows of a dataset.

    Args:
        pipeline: a trained pipeline.
        dataset: rows labeled by the pipeline's hierarchy.
        metrics: names of METRICS, each of which must be defined for these rows; by default those
            that are ``shown``, "all" for every one, None where one is not defined.
        decoder: how it answers; by default the pipeline's own.
    """
    return figures(predictions(pipeline, dataset, decoder), metrics)


def predictions(pipeline: Pipeline, dataset: Dataset, decoder: Decoder | None = None) -> Answers:
    """Return what a pipeline predicts for labeled rows, ready to be measured.

    Args:
        pipeline: a trained pipeline.
        dataset: rows labeled by the pipeline's hierarchy.
        decoder: how it answers; by default the pipeline's own.
    """
    targets, mask = truth_of(pipeline, dataset)
    p = pipeline.probabilities(dataset.inputs)  # to the last bit what predict decides on
    check_finite(p, dataset)
    space = pipeline.label_space
    return Answers(p, targets, space, mask, decoder or pipeline.make_decoder())


def truth_of(pipeline: Pipeline, dataset: Dataset) -> tuple[Tensor, Tensor | None]:
    """Return the targets of labeled rows, and a mask of what is known, None where all is."""
    check_hierarchy(pipeline, dataset)
    if not len(dataset):
        raise HierlearnError("there are no rows to evaluate on")
    labels = Labels(dataset.labels, pipeline.hierarchy, unlabeled_descendants=policy_of(pipeline))
    return labels.targets(), known_entries(labels, dataset.unseen)


def known_entries(labels: Labels, unseen: Collection[int]) -> Tensor | None:
    """Return (N, C) which entries are known, None where all are.

    Args:
        labels: of the rows.
        unseen: rows with a label that the taxonomy lacks, so that no class below the nearest one
            that it has is true.
    """
    if labels.unlabeled_descendants == "negative":
        return None
    mask = labels.mask()
    mask[list(unseen)] = True
    return mask


def policy_of(pipeline: Pipeline) -> UnlabeledDescendants:
    """Return how the classes below a label counted when a pipeline was trained."""
    plan: dict[str, Any] = pipeline.config.get("plan", {})
    found: UnlabeledDescendants = plan.get("unlabeled_descendants", "negative")
    return found


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
