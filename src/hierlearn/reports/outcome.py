"""Outcome: what a model does on labeled rows, computed once for all parts of its page.

The figures and the answers are those of ``hierlearn evaluate``. Where the model answers sets, a
mistake is shown by the best terminal class of the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.labels import Labels
from hierlearn.pipeline.evaluate import predictions
from hierlearn.reports.decisions import Decisions, Truth, decide

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.datasets import Dataset
    from hierlearn.hierarchy import LabelSpace
    from hierlearn.metrics.answers import Answers
    from hierlearn.pipeline import Pipeline

BEYOND = ("au-prc",)  # what the page shows beside the figures of evaluate


@dataclass(frozen=True)
class Outcome:
    """The probabilities and answers of a model on N rows, with the truth.

    Attributes:
        dataset: the rows.
        truth: the labels, sparse.
        answers: what the model answers, beside the labels.
        decisions: the answer of every row, (1, N); where sets are answered, its best terminal
            class.
        several: whether a row has several labels, or sets are answered.
        answered_by: the name of the decoder.
        metrics: metrics by name; None where one is not defined.
        unlabeled: how many rows have no label.
    """

    dataset: Dataset
    truth: Truth
    answers: Answers
    decisions: Decisions
    several: bool
    answered_by: str
    metrics: dict[str, Any]
    unlabeled: int = 0

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def space(self) -> LabelSpace:
        """What can be predicted."""
        return self.answers.space

    @property
    def p(self) -> Tensor:
        """(N, C) node probabilities."""
        return self.answers.p

    @property
    def targets(self) -> Tensor:
        """(N, C) bool, closed."""
        return self.answers.targets


def outcome(pipeline: Pipeline, dataset: Dataset) -> Outcome:
    """Return what a pipeline does on labeled rows."""
    given = predictions(pipeline, dataset)
    answers, space = given.answers, pipeline.label_space
    labels = Labels(dataset.labels, space.hierarchy)
    ends = np.diff(labels.terminal[0])
    if not ends.any():
        raise HierlearnError(
            f"none of the {len(dataset)} rows has a label, so there is nothing to report on"
        )
    truth = Truth(space.hierarchy, *labels.closed)
    rows = decide(given.p, space)
    if answers.single is not None:
        best = answers.single.clamp_min(0)[:, None]
        rows["probability"] = given.p.gather(1, best)[:, 0].numpy()
        rows["answer"] = answers.single.numpy()
        rows["wrong"] = answers.wrong_levels.any(dim=1).numpy()
    found = {name: values[None] for name, values in rows.items()}
    decisions = Decisions.read(truth, found, terminal=space.is_terminal)
    return Outcome(
        dataset=dataset,
        truth=truth,
        answers=answers,
        decisions=decisions,
        several=bool((ends > 1).any()) or answers.single is None,
        answered_by=pipeline.decoder,
        metrics={**given.figures(), **undefined_as_none(given, BEYOND)},
        unlabeled=int(np.count_nonzero(ends == 0)),
    )


def undefined_as_none(given: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return metrics by name, None where one is not defined for these rows."""
    found: dict[str, Any] = {}
    for name in names:
        try:
            found |= given.figures([name])
        except HierlearnError:
            found[name] = None
    return found
