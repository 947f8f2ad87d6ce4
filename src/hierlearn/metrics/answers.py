"""Answers: what a model answers on rows, beside the truth; the figures that are shown first.

A is the answer of a row, T its truth, both closed under ancestors and cut down to the entries that
are known; A_k and T_k are their classes of level k.

    wrong levels   of a row: #{k : A_k != T_k}
    exact          fraction of rows without a wrong level
    accuracy       of level k: fraction with A_k = T_k, of the rows with T_k not empty; of level 1,
                   of all rows
    severity       mean number of wrong levels, of the rows that have any
    f1             2 sum |A n T| / sum (|A| + |T|), over all rows together
    calibration    sum over bins b of n_b / N * |mean p in b - fraction right in b|, over the
                   classes that are written, the most specific of A; one in T is right
    answered       fraction of rows with A not empty
    complete       fraction of rows whose answer is not above the terminal classes

So an answer above the truth is wrong at the levels that it lacks, one below it at those that it
adds, and no answer at every level of the truth. A row without labels has an empty T, so that any
answer is wrong at level 1. A row of which nothing is known counts nowhere.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch

from hierlearn.decoding import ancestor_sets, make_decoder
from hierlearn.decoding.decoder import check_closed, most_specific
from hierlearn.decoding.probabilities import terminal_scores
from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.calibration import binned_error
from hierlearn.metrics.inputs import (
    as_probabilities,
    as_targets,
    check_rows,
    reduce_rows,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.metrics.inputs import Reduction, Scores, Space, Targets
    from hierlearn.metrics.measure import Metric


class Answers:
    """What a decoder answers on N rows, beside the truth.

    Args:
        probabilities: (N, C) node probabilities, or a ``HeadOutput``.
        targets: (N, C) closed multi-hot, or labels.
        label_space: the taxonomy and its terminal classes.
        mask: (N, C) which entries are known; None for all.
        decoder: how it answers; by default the best terminal class.

    Attributes:
        space: the taxonomy and its terminal classes.
        p, targets: as given, checked.
        mask: (N, C) bool which entries are known; None for all.
        counted: (N,) bool which rows have a known entry.
    """

    def __init__(
        self,
        probabilities: Scores,
        targets: Targets,
        label_space: Space,
        mask: Tensor | None = None,
        decoder: Decoder | str | None = None,
    ) -> None:
        self.space = space = LabelSpace.of(label_space)
        hierarchy = space.hierarchy
        self.p = as_probabilities(probabilities, hierarchy)
        targets = as_targets(targets, self.p.shape, hierarchy, beside="probabilities")
        self.targets = targets.to(self.p.device)
        check_closed(self.targets, hierarchy)
        if mask is not None:
            if mask.shape != self.p.shape:
                raise HierlearnError(
                    f"mask {tuple(mask.shape)} must match probabilities {tuple(self.p.shape)}"
                )
            mask = mask.to(self.p.device).bool()
        self.mask = mask
        self.counted = (
            torch.ones(len(self.p), dtype=torch.bool, device=self.p.device)
            if self.mask is None
            else self.mask.any(dim=1)
        )
        self.decoder = make_decoder(space, decoder or "leaf")
        self._read: dict[str, tuple[Tensor, Tensor]] = {}

    @cached_property
    def single(self) -> Tensor | None:
        """(N,) class numbers, -1 for no answer, of a decoder of one class per row; else None."""
        return self.decoder(self.p) if self.decoder.answers == "class" else None

    @cached_property
    def sets(self) -> Tensor:
        """(N, C) bool: the answers, closed under ancestors."""
        if self.single is None:
            return self.decoder.sets(self.p)
        return ancestor_sets(self.space.hierarchy, self.single)

    @cached_property
    def classes(self) -> Tensor:
        """(N, C) bool: the classes that are written, the most specific ones."""
        return most_specific(self.sets, self.space.hierarchy)

    def __len__(self) -> int:
        return len(self.p)

    def known(self, entries: Tensor) -> Tensor:
        """Return (N, C) entries where they are known."""
        return entries if self.mask is None else entries & self.mask

    @cached_property
    def wrong_levels(self) -> Tensor:
        """(N, L) bool: at which levels the answer is not the truth."""
        odd = self.known(self.sets) != self.targets
        return self._by_level(odd)

    @cached_property
    def labeled_levels(self) -> Tensor:
        """(N, L) bool: at which levels the truth has a class, or says at the first that none is."""
        labeled = self._by_level(self.targets)
        labeled[:, 0] = self.counted
        return labeled

    def _by_level(self, entries: Tensor) -> Tensor:
        slices = self.space.hierarchy.level_slices
        return torch.stack([entries[:, columns].any(dim=1) for columns in slices], dim=1)

    @cached_property
    def stopped(self) -> Tensor:
        """(N,) bool: there is no answer, or one of its classes lies above the terminal ones."""
        terminal = torch.tensor(self.space.is_terminal, device=self.p.device)
        return (self.classes & ~terminal).any(dim=1) | ~self.sets.any(dim=1)

    def sure_and_right(self, level: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the p (M,) of answered classes, and whether each is right; unknown ones left out.

        Args:
            level: look at the classes of the answers at a level, from 1, in the rows with a label
                there; by default at the classes that are written.
        """
        answered = self.known(self.classes)
        if level is not None:
            answered = torch.zeros_like(self.sets)
            columns = self.space.hierarchy.level_slices[level - 1]
            answered[:, columns] = self.known(self.sets)[:, columns]
            answered &= self.labeled_levels[:, level - 1, None]
        return self.p[answered].double(), self.targets[answered]

    # ------------------------------------------------------------------ metrics of them

    def rows_of(self, metric: Metric) -> Tensor | None:
        """Return (N,) bool the rows that a metric of scores reads; None for all."""
        if self.mask is None:
            return None
        return self.mask.all(dim=1) if metric.of_terminals else self.mask.any(dim=1)

    def read(self, metric: Metric) -> tuple[Tensor, Tensor]:
        """Return what a metric of scores reads: p, or the terminal scores, and the targets."""
        key = "terminal" if metric.of_terminals else metric.takes
        if key not in self._read:
            p, targets, rows = self.p, self.targets, self.rows_of(metric)
            if self.mask is not None and rows is not None:
                lowest = -1.0 if metric.takes == "scores" else 0.0
                p, targets = p.masked_fill(~self.mask, lowest)[rows], targets[rows]
            self._read[key] = terminal_scores(p, self.space) if metric.of_terminals else p, targets
        return self._read[key]

    def value(self, metric: Metric) -> Tensor:
        """Return the metric."""
        if metric.of_answers:
            return metric.of(self)
        return metric(*self.read(metric), self.space)

    def rows(self, metric: Metric) -> NDArray[np.float64]:
        """Return (N,) the metric of each row."""
        metric.check_per_row()
        if metric.of_answers:
            return metric.of(self, reduction="none").cpu().numpy()
        found, rows = metric.rows(*self.read(metric), self.space).cpu(), self.rows_of(metric)
        if rows is not None:
            some, found = found, torch.full((len(self.p),), torch.nan, dtype=torch.float64)
            found[rows.cpu()] = some
        return found.numpy()


def wrong_levels(answers: Answers) -> Tensor:
    """Return (N,) int64 the number of levels at which each answer is wrong."""
    return answers.wrong_levels.sum(dim=1)


def exact(answers: Answers, *, reduction: Reduction = "mean") -> Tensor:
    """Return the fraction of rows that are answered exactly."""
    right = (wrong_levels(answers) == 0).double().masked_fill(~answers.counted, torch.nan)
    return reduce_rows(right, reduction, "exact answers")


def accuracy(answers: Answers) -> Tensor:
    """Return (L,) the fraction of rows right at each level, of those that count there."""
    check_rows(len(answers), "accuracy")
    labeled = answers.labeled_levels
    return (labeled & ~answers.wrong_levels).sum(dim=0) / labeled.sum(dim=0).double()


def severity(answers: Answers, *, reduction: Reduction = "mean") -> Tensor:
    """Return the mean number of wrong levels of the rows that are not exact, NaN without any."""
    levels = wrong_levels(answers).double()
    rows = levels.masked_fill((levels == 0) | ~answers.counted, torch.nan)
    if reduction == "mean" and len(rows):
        return rows.nanmean()  # NaN where there is no mistake
    return reduce_rows(rows, reduction, "severity")


def f1(answers: Answers, *, weights: Tensor | None = None) -> Tensor:
    """Return the hierarchical F1 of all rows together, 0 where all sets are empty.

    Args:
        answers: answers and truth.
        weights: (N,) how much each row counts; None counts each as 1.
    """
    check_rows(len(answers), "f1")
    answered = answers.known(answers.sets)
    both = (answered & answers.targets).sum(dim=1).double()
    sizes = (answered.sum(dim=1) + answers.targets.sum(dim=1)).double()
    if weights is not None:
        both, sizes = weights * both, weights * sizes
    total = sizes.sum()
    return 2 * both.sum() / torch.where(total > 0, total, 1.0)


def calibration(answers: Answers) -> Tensor:
    """Return the expected calibration error of the answered classes, NaN without any."""
    check_rows(len(answers), "calibration")
    return binned_error(*answers.sure_and_right())


def answered(answers: Answers, *, reduction: Reduction = "mean") -> Tensor:
    """Return the fraction of rows that are answered by any class."""
    found = answers.sets.any(dim=1).double().masked_fill(~answers.counted, torch.nan)
    return reduce_rows(found, reduction, "answered rows")


def complete(answers: Answers, *, reduction: Reduction = "mean") -> Tensor:
    """Return the fraction of rows whose answer is not above the terminal classes."""
    found = (~answers.stopped).double().masked_fill(~answers.counted, torch.nan)
    return reduce_rows(found, reduction, "complete answers")
