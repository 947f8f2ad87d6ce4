"""Score: the quality of decisions as one number, for scikit-learn.

    one label per row    the fraction of rows whose closed answer is the truth on known classes
    several labels       F1 = 2 sum |A n T| / sum (|A| + |T|), over the known classes of all rows

A and T are closed under ancestors. Known is what the policy of the labels leaves: under "ignore"
the classes below a label are not, so an answer there is not wrong, and a row without a label
says nothing at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.errors import DataError
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.metrics.evaluation import Evaluation
from hierlearn.metrics.measure import measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.estimator.label_format import LabelFormat, ParsedLabels


def answers_and_truth(
    decoder: Decoder, p: Tensor, given: ParsedLabels, form: LabelFormat, policy: Any
) -> tuple[Tensor, Labels, bool]:
    """Return answers and truth over all classes of both, and whether rows have several labels.

    Args:
        decoder: how a decision is made.
        p: (N, C) node probabilities.
        given: the true labels; an inferred hierarchy may lack some.
        form: the form of the training labels.
        policy: how the classes below a label count, as in Labels.
    """
    extended = form.extended_hierarchy(given)
    names = replace(form, hierarchy=extended).names(given)
    labels = Labels(names, extended, unlabeled_descendants=policy)
    answers = torch.zeros(len(p), len(extended), dtype=torch.bool)
    answers[:, [extended.index(name) for name in form.hierarchy.names]] = decoder.sets(p)
    several = "several" in (given.shape, form.shape) or decoder.answers != "class"
    return answers, labels, several


def evaluate(
    p: Tensor,
    given: ParsedLabels,
    form: LabelFormat,
    space: LabelSpace,
    metrics: Sequence[str] | None,
) -> Evaluation:
    """Return metrics of probabilities; a label that an inferred hierarchy lacks counts as missed.

    Args:
        p: (N, C) node probabilities.
        given: the true labels.
        form: the form of the training labels.
        space: that of the training.
        metrics: names of METRICS; by default those that are shown.
    """
    extended = form.extended_hierarchy(given)
    labels = Labels(replace(form, hierarchy=extended).names(given), extended)
    if extended is not form.hierarchy:
        wide = p.new_zeros(len(p), len(extended))
        wide[:, [extended.index(name) for name in form.hierarchy.names]] = p
        p, space = wide, LabelSpace(extended, space.terminal_names)
    return Evaluation(measure(p, labels, space, metrics))


def exact_fraction(answers: Tensor, labels: Labels, weights: Tensor) -> float:
    """Return the fraction of rows that are answered exactly.

    Args:
        answers: (N, C) bool, closed.
        labels: the truth.
        weights: (N,) how much each row counts.
    """
    known = labels.mask()
    counted = weights * known.any(dim=1)
    if not bool(counted.any()):
        raise DataError("no row has a label, so there is nothing to score")
    right = ((answers & known) == labels.targets()).all(dim=1)
    return float((counted * right).sum() / counted.sum())


def pooled_f1(answers: Tensor, labels: Labels, weights: Tensor) -> float:
    """Return the hierarchical F1 of all rows together, 0 where all sets are empty.

    Args:
        answers: (N, C) bool, closed.
        labels: the truth.
        weights: (N,) how much each row counts.
    """
    targets = labels.targets()
    both = (weights * (answers & targets).sum(dim=1)).sum()
    sizes = (answers & labels.mask()).sum(dim=1) + targets.sum(dim=1)
    total = (weights * sizes).sum()
    return float(2 * both / torch.where(total > 0, total, 1.0))
