"""Answers: what a model answers on rows, beside the truth; the figures that are shown first.

A is the answer of a row, T its truth, both closed under ancestors and cut down to the entries that
are known; A_k and T_k are their classes of level k.

    wrong levels   of a row: #{k : A_k != T_k}
    exact          fraction of rows without a wrong level
    accuracy       of level k: fraction with A_k = T_k, of the rows with T_k not empty
    severity       mean number of wrong levels, of the rows that have any
    f1             2 sum |A n T| / sum (|A| + |T|), over all rows together
    calibration    sum over bins b of n_b / N * |mean p in b - fraction right in b|, over the
                   classes that are written, the most specific of A; one in T is right
    answered       fraction of rows with A not empty
    complete       fraction of rows whose answer is not above the terminal classes

So an answer above the truth is wrong at the levels that it lacks, one below it at those that it
adds, and no answer at every level of the truth. A row without labels has an empty T. A row of which
nothing is known counts nowhere.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

import torch

from hierlearn.decoding import ancestor_sets, make_decoder
from hierlearn.decoding.decoder import most_specific
from hierlearn.hierarchy import LabelSpace
from hierlearn.metrics.inputs import (
    as_probabilities,
    as_targets,
    check_closed,
    check_rows,
    inside,
    reduce_rows,
)
from hierlearn.metrics.metric import Metric, unit_interval

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.metrics.inputs import Reduction, Scores, Space, Targets

BINS = 15


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
        self.mask = inside(mask, self.p)
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
        """(N, L) bool: at which levels the truth has a class."""
        return self._by_level(self.targets)

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


def wrong_levels(answers: Answers) -> Tensor:
    """Return (N,) int64 the number of levels at which each answer is wrong."""
    return answers.wrong_levels.sum(dim=1)


def exact(answers: Answers, *, reduction: Reduction = "mean") -> Tensor:
    """Return the fraction of rows that are answered exactly.

    Args:
        answers: answers and truth.
        reduction: "mean", or "none" for (N,), NaN in a row of which nothing is known.
    """
    right = (wrong_levels(answers) == 0).double().masked_fill(~answers.counted, torch.nan)
    return reduce_rows(right, reduction, "exact answers")


def accuracy(answers: Answers) -> Tensor:
    """Return (L,) the fraction of rows right at each level, of those with a label there."""
    check_rows(len(answers), "accuracy")
    labeled = answers.labeled_levels
    return (labeled & ~answers.wrong_levels).sum(dim=0) / labeled.sum(dim=0).double()


def severity(answers: Answers, *, reduction: Reduction = "mean") -> Tensor:
    """Return the mean number of wrong levels of the rows that are not exact, NaN without any.

    Args:
        answers: answers and truth.
        reduction: "mean", or "none" for (N,), NaN where a row is exact.
    """
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


def calibration(answers: Answers, *, bins: int = BINS) -> Tensor:
    """Return the expected calibration error of the answered classes, NaN without any.

    Args:
        answers: answers and truth.
        bins: of equal width over [0, 1].
    """
    check_rows(len(answers), "calibration")
    return binned_error(*answers.sure_and_right(), bins)


def binned_error(sure: Tensor, right: Tensor, bins: int = BINS) -> Tensor:
    """Return the expected calibration error of (M,) probabilities, NaN without any."""
    place = bin_of(sure, bins)
    excess = torch.zeros(bins, dtype=torch.float64, device=sure.device)
    excess.index_add_(0, place, sure.double() - right.double())
    return excess.abs().sum() / len(sure) if len(sure) else excess.new_tensor(torch.nan)


def bin_of(sure: Tensor, bins: int = BINS) -> Tensor:
    """Return the bin of each probability; a bin contains its lower edge, the last one also 1."""
    edges = torch.arange(1, bins, dtype=torch.float64, device=sure.device) / bins
    return torch.bucketize(sure.double().contiguous(), edges, right=True)


def answered(answers: Answers, *, reduction: Reduction = "mean") -> Tensor:
    """Return the fraction of rows that are answered by any class.

    Args:
        answers: answers and truth.
        reduction: "mean", or "none" for (N,), NaN in a row of which nothing is known.
    """
    found = answers.sets.any(dim=1).double().masked_fill(~answers.counted, torch.nan)
    return reduce_rows(found, reduction, "answered rows")


def complete(answers: Answers, *, reduction: Reduction = "mean") -> Tensor:
    """Return the fraction of rows whose answer is not above the terminal classes.

    Args:
        answers: answers and truth.
        reduction: "mean", or "none" for (N,), NaN in a row of which nothing is known.
    """
    found = (~answers.stopped).double().masked_fill(~answers.counted, torch.nan)
    return reduce_rows(found, reduction, "complete answers")


def levels_of(hierarchy: Hierarchy) -> tuple[float, float]:
    """Return how many levels a mistake may be wrong at."""
    return 1.0, float(hierarchy.depth)


metric = partial(Metric, takes="probabilities", of_answers=True, shown=True)
ENTRIES = (
    metric(
        "accuracy",
        accuracy,
        "fraction of rows answered right at a level, of those with a label there",
        unit="percent",
        by_level=True,
    ),
    metric(
        "exact",
        exact,
        "fraction of rows answered exactly: right at every level",
        unit="percent",
        per_row=True,
    ),
    metric(
        "severity",
        severity,
        "levels wrong per mistake: the mean over the rows that are not exact",
        direction="down",
        unit="levels",
        limits=levels_of,
        per_row=True,
    ),
    metric(
        "f1",
        f1,
        "hierarchical F1 of the answers, all rows together",
        limits=unit_interval,
    ),
    metric(
        "calibration",
        calibration,
        "expected calibration error of the answered classes",
        direction="down",
        unit="percent",
    ),
    metric(
        "answered",
        answered,
        "fraction of rows that are answered by any class",
        direction="none",
        unit="percent",
        per_row=True,
    ),
    metric(
        "complete",
        complete,
        "fraction of rows whose answer is not above the terminal classes",
        direction="none",
        unit="percent",
        per_row=True,
    ),
)
