"""Score: what a classifier is worth on labeled rows; the figures are those of ``evaluate``.

    one label per row    exact: the fraction of rows that are answered exactly
    several labels       f1: 2 sum |A n T| / sum (|A| + |T|)

A label that the taxonomy lacks is scored at the nearest class above it that it has.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.labels import LabelWarning, is_unknown, unseen_note
from hierlearn.errors import DataError
from hierlearn.estimator.label_format import name_of
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics.answers import Answers, exact, f1
from hierlearn.metrics.evaluation import Evaluation
from hierlearn.metrics.measure import measure
from hierlearn.pipeline.evaluate import known_entries, policy_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.estimator.label_format import LabelFormat, ParsedLabels
    from hierlearn.pipeline.pipeline import Pipeline


def known_labels(
    given: ParsedLabels, form: LabelFormat
) -> tuple[list[list[Any]], dict[int, list[str]]]:
    """Return the labels of rows as a taxonomy knows them, and by row those that it lacks.

    Args:
        given: the labels.
        form: the form of the training labels.
    """
    if given.are_numbers and form.numbers:
        return form.names(given), {}
    hierarchy = form.hierarchy
    above: dict[str, tuple[str, ...]] = {}
    named: list[list[Any]] = []
    unseen: dict[int, list[str]] = {}
    for row, labels in enumerate(given.rows):
        texts = [name_of(label) for label in labels] if given.are_numbers else labels
        here: list[Any] = []
        for label in texts:
            new = isinstance(label, str) and label not in above and label not in hierarchy
            if new and is_unknown(label, hierarchy):
                above[label] = hierarchy.nearest_known(label)
            if label in above:
                unseen.setdefault(row, []).append(label)
                here += above[label]
            else:
                here.append(label)
        named.append(here)
    if unseen and not any(named):
        return given.rows if not given.are_numbers else form.names(given), {}  # says which
    return named, unseen


def truth(
    given: ParsedLabels, form: LabelFormat, pipeline: Pipeline
) -> tuple[Labels, Tensor | None]:
    """Return labels, and a mask of what is known of them; warn of those that the taxonomy lacks.

    Args:
        given: the labels.
        form: the form of the training labels.
        pipeline: what was trained on these.
    """
    names, unseen = known_labels(given, form)
    if unseen:
        lost = [row for row in unseen if not names[row]]
        warnings.warn(LabelWarning(unseen_note(unseen, lost)), stacklevel=4)
    labels = Labels(names, form.hierarchy, unlabeled_descendants=policy_of(pipeline))
    return labels, known_entries(labels, unseen)


def evaluate(
    p: Tensor,
    given: ParsedLabels,
    form: LabelFormat,
    pipeline: Pipeline,
    decoder: Decoder,
    metrics: Sequence[str] | None,
) -> Evaluation:
    """Return metrics of a classifier.

    Args:
        p: (N, C) node probabilities.
        given: the true labels.
        form: the form of the training labels.
        pipeline: what was trained.
        decoder: how it answers.
        metrics: names of METRICS; by default those that are shown.
    """
    labels, mask = truth(given, form, pipeline)
    return Evaluation(measure(p, labels, pipeline.label_space, metrics, mask=mask, decoder=decoder))


def score(
    p: Tensor,
    given: ParsedLabels,
    form: LabelFormat,
    pipeline: Pipeline,
    decoder: Decoder,
    weights: Tensor,
) -> float:
    """Return ``exact``, or ``f1`` where rows have several labels or sets are answered.

    Args:
        p: (N, C) node probabilities.
        given: the true labels.
        form: the form of the training labels.
        pipeline: what was trained.
        decoder: how it answers.
        weights: (N,) how much each row counts.
    """
    labels, mask = truth(given, form, pipeline)
    answers = Answers(p, labels, pipeline.label_space, mask, decoder)
    several = "several" in (given.shape, form.shape) or decoder.answers != "class"
    return weighted_f1(answers, weights) if several else weighted_exact(answers, weights)


def weighted_exact(answers: Answers, weights: Tensor) -> float:
    """Return the fraction of rows that are answered exactly, each counted by its weight."""
    rows = exact(answers, reduction="none")
    counted = weights * ~rows.isnan()
    if not bool(counted.any()):
        raise DataError("no row has a label, so there is nothing to score")
    return float((counted * rows.nan_to_num()).sum() / counted.sum())


def weighted_f1(answers: Answers, weights: Tensor) -> float:
    """Return the hierarchical F1 of all rows together, each counted by its weight."""
    return float(f1(answers, weights=weights))
