"""Outcome: what a model does on labeled rows, computed once for all parts of its page.

With one path per row, the decision is the best terminal class, as in the metrics leaf-accuracy and
terminal-accuracy. With several, a set is answered: that of the model's decoder where it answers
sets, otherwise every class with p >= 0.5, as in hier-f1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics import answer_accuracy, hierarchical_f1, mean_level
from hierlearn.metrics.measure import measure, measure_rows
from hierlearn.metrics.sets import THRESHOLD, answered_sets
from hierlearn.pipeline.evaluate import check_hierarchy
from hierlearn.studies.decisions import HEIGHT, Decisions, Truth
from hierlearn.studies.runner import decide

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.datasets import Dataset
    from hierlearn.hierarchy import LabelSpace
    from hierlearn.pipeline import Pipeline

METRICS = ("leaf-accuracy", "terminal-accuracy", "level-accuracy", "lca-height")
SET_METRICS = ("leaf-accuracy", "level-accuracy", "au-prc", "exact-match")


@dataclass(frozen=True)
class Outcome:
    """The probabilities and decisions of a model on N rows, with the truth.

    Attributes:
        dataset: the rows that count.
        space: what can be predicted.
        p: (N, C) node probabilities.
        targets: (N, C) bool, closed.
        truth: the labels, sparse.
        decisions: the best terminal class of every row, (1, N).
        answers: (N, C) bool, closed: what is answered.
        several: whether a row has several labels, so that sets are answered.
        answered_by: how the sets are answered.
        metrics: metrics by name; None where one is not defined.
        unlabeled: rows that were left out, because they have no label.
    """

    dataset: Dataset
    space: LabelSpace
    p: Tensor
    targets: Tensor
    truth: Truth
    decisions: Decisions
    answers: Tensor
    several: bool
    answered_by: str
    metrics: dict[str, Any]
    unlabeled: int = 0

    def __len__(self) -> int:
        return len(self.targets)


def outcome(pipeline: Pipeline, dataset: Dataset) -> Outcome:
    """Return what a pipeline does on labeled rows."""
    check_hierarchy(pipeline, dataset)
    space = pipeline.label_space
    labels = Labels(dataset.labels, space.hierarchy)
    ends = np.diff(labels.terminal[0])
    if not ends.any():
        raise HierlearnError(
            f"none of the {len(dataset)} rows has a label, so there is nothing to report on"
        )
    several, unlabeled = bool((ends > 1).any()), int(np.count_nonzero(ends == 0))
    if unlabeled and not several:
        dataset = dataset.take(ends > 0)
        labels = Labels(dataset.labels, space.hierarchy)
    targets = labels.targets()
    p = pipeline.probabilities(dataset.inputs)
    found = {**decide(p, space), **measure_rows(p, targets, space, [HEIGHT])}
    truth = Truth(space.hierarchy, *labels.closed)
    decisions = Decisions.read(truth, {name: values[None] for name, values in found.items()})
    predicted: Tensor = torch.from_numpy(decisions.decided[0])
    answered_by, threshold = "the best terminal class of each row", None
    if several:
        predicted, answered_by, threshold = answered(pipeline, p)
    answers, _ = answered_sets(predicted, targets, space, threshold)
    metrics = figures(p, targets, space, SET_METRICS if several else METRICS)
    metrics["hier-f1"] = float(hierarchical_f1(answers, targets, space))
    decoder = pipeline.make_decoder()
    if not several and decoder.answers == "class":
        chosen = decoder(p)
        metrics["answer-accuracy"] = float(answer_accuracy(chosen, targets, space))
        metrics["answer-level"] = float(mean_level(chosen, space))
    return Outcome(
        dataset=dataset,
        space=space,
        p=p,
        targets=targets,
        truth=truth,
        decisions=decisions,
        answers=answers,
        several=several,
        answered_by=answered_by,
        metrics=metrics,
        unlabeled=0 if several else unlabeled,
    )


def answered(pipeline: Pipeline, p: Tensor) -> tuple[Tensor, str, float | None]:
    """Return the sets of rows with several labels, how they are made, and a threshold if any."""
    decoder = pipeline.make_decoder()
    if decoder.answers == "set":
        return decoder(p), f"the set that the decoder {pipeline.decoder} answers", None
    return p, f"all classes with p of at least {THRESHOLD}", THRESHOLD


def figures(
    p: Tensor, targets: Tensor, space: LabelSpace, names: tuple[str, ...]
) -> dict[str, Any]:
    """Return metrics by name, None where one is not defined for these rows."""
    found: dict[str, Any] = {}
    for name in names:
        try:
            found |= measure(p, targets, space, [name])
        except HierlearnError:  # such as no label at a leaf
            found[name] = None
    return found
