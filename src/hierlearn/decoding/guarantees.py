"""Decoders with a guarantee from calibration rows: ``Stop`` and ``ConformalSets``.

Calibration sets: checks, and the rank of the score that a guarantee for a risk allows.

Of n + 1 exchangeable scores each is equally likely to be the new one, so it is among the k most
extreme with probability at most k / (n + 1). A risk allows

    k = floor(risk (n + 1)),

which must be at least 1: fewer than 1 / risk - 1 rows give no guarantee.

The threshold of `stop` that keeps the expected error rate at or below a risk.

Conformal risk control (Angelopoulos et al., 2022) for the loss "the answer is none of the row's
labels and their ancestors". The root is never wrong. On the greedy chain c_1, c_2, ... of a row
let c_f be the first class that is not in its targets; whatever follows is wrong as well, so the
row errs at threshold t exactly where the walk passes c_f:

    s = min over i <= f of p(c_i) > t,    s = 0 where no class of the chain is wrong

The loss falls in t, so the threshold is the smallest t among 0 and the scores s of n rows with

    (number of scores above t + 1) / (n + 1) <= risk.

If those rows and a new one are exchangeable, the new one's answer is wrong with probability at most
risk, over the draw of both.

Stop: walk down the greedy chain for as long as the next class is probable enough.

    the deepest c_j of the chain c_1, c_2, ... with p(c_i) > threshold for every i <= j

Where p(c_1) is too small already, the answer is the root. Threshold 1 always answers the root, 0
walks down to where p is 0. Where p adds up and the threshold is at least 0.5, at most one class per
level exceeds it, and the answer is the deepest class that does.

Conformal sets: candidates that contain the truth with a guaranteed probability.

    s(t) = p(t) of a leaf t; of an inner terminal class p(t) - the sum of p over its children
    v(c) = max over the terminal classes t at or below c of s(t)
    candidates = {c : v(c) >= threshold}

The terminal classes are chosen by their probability alone, as plain conformal prediction over the
leaves does, and their ancestors come along: candidates are closed under ancestors. With a
``spread`` whole subtrees are chosen instead, larger sets that are made of fewer subtrees:

    s(t) = max over t and its ancestors a of p(a) / size(a)^spread

size(a) counts the terminal classes at or below a.

Split conformal prediction finds the threshold from n rows: the score of a row is the smallest v
among its most specific labels, and the threshold the floor(risk (n + 1))-th smallest score. If
those rows and a new one are exchangeable, all labels of the new one are candidates with probability
at least 1 - risk, over the draw of both.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import torch

from hierlearn.decoding.classes import greedy_chain, last_of
from hierlearn.decoding.decoder import ROOT, Answers, Decoder, check_closed, most_specific
from hierlearn.decoding.probabilities import (
    as_tensor,
    check_fraction,
    check_probabilities,
    checked_rows,
    terminal_scores,
)
from hierlearn.errors import HierlearnError, arg, shown
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_width

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.decoding.probabilities import Probabilities
    from hierlearn.hierarchy import Hierarchy
MOST_ROWS = 10**9  # of a calibration set


def check_risk(risk: float) -> None:
    """Raise unless a risk is a fraction."""
    level: object = risk  # which may come from anywhere
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        remedy = ""
        if isinstance(level, (int, float)) and 1 < level < 100:
            remedy = f"; write {level:g} % as {level / 100:g}"
        raise HierlearnError(f"{arg('risk')} must lie between 0 and 1, not {shown(level)}{remedy}")


def rank_of(risk: float, count: int) -> int:
    """Return k, the largest integer with k / (n + 1) <= risk.

    Args:
        risk: the level, between 0 and 1.
        count: n, the rows of the calibration set.
    """
    check_risk(risk)
    # 0.29 * 100 is less than 29 in floating point, and 29 / 100 is 0.29.
    fraction = Fraction(risk).limit_denominator(MOST_ROWS)
    rank = int(fraction * (count + 1))
    if not rank:
        needed = f"{math.ceil(1 / fraction) - 1:,}" if fraction else f"{1 / risk:.3g}"
        raise HierlearnError(
            f"a risk of {risk} needs at least {needed} calibration rows, but there are {count}"
        )
    return rank


def check_calibration(
    probabilities: Tensor, targets: Tensor, hierarchy: Hierarchy, risk: float
) -> int:
    """Raise for an unsuitable calibration set; return the rank that the risk allows."""
    check_probabilities(probabilities, hierarchy)
    if targets.shape != probabilities.shape:
        raise HierlearnError(
            f"targets {tuple(targets.shape)} must match probabilities {tuple(probabilities.shape)}"
        )
    if targets.dtype != torch.bool:
        raise HierlearnError(f"targets must be bool, not {targets.dtype}")
    check_closed(targets, hierarchy)
    return rank_of(risk, len(probabilities))


# ---------------------------------------- risk


@torch.no_grad()
def risk_threshold(
    probabilities: Probabilities,
    targets: Tensor,
    label_space: LabelSpace | Hierarchy,
    risk: float,
) -> float:
    """Return the smallest threshold that conformal risk control allows for a risk.

    The threshold is one of the probabilities or 0, exact in their precision, so that ``Stop``
    makes the same comparison; predict in the precision that was calibrated in.

    Args:
        probabilities: (n, C) of rows that the model was neither trained nor selected on.
        targets: (n, C) bool, closed.
        label_space: the taxonomy, a tree or a DAG.
        risk: the error rate, between 0 and 1.

    Raises:
        HierlearnError: if there are too few rows, or the targets are not suitable.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    nodes = as_tensor(probabilities)
    rank = check_calibration(nodes, targets, hierarchy, risk)
    scores = [
        error_scores(p, targets[rows], hierarchy)
        for rows, p in checked_rows(nodes, hierarchy, row_width(hierarchy))
    ]
    # At the rank-th largest score, fewer than ``rank`` lie above.
    return float(torch.cat(scores).sort(descending=True).values[rank - 1])


def error_scores(p: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (n,) the score s of each row: it errs at every threshold below."""
    chain = greedy_chain(p, hierarchy)  # (n, L)
    place = chain.clamp_min(0)
    smallest = p.gather(1, place).cummin(dim=1).values
    wrong = (chain != ROOT) & ~targets.gather(1, place)
    first = wrong.int().argmax(dim=1, keepdim=True)
    score = smallest.gather(1, first).squeeze(1)
    return torch.where(wrong.any(dim=1), score, 0.0)


# ---------------------------------------- stop


class Stop(Decoder):
    """The deepest class of the greedy chain that is probable enough, or the root.

    Args:
        label_space: the taxonomy, a tree or a DAG.
        threshold: what p must exceed; ``calibrate`` finds it for a bound on the error rate.
    """

    answers: Answers = "class"

    def __init__(self, label_space: LabelSpace | Hierarchy, threshold: float = 0.5) -> None:
        super().__init__(label_space)
        self.threshold = check_fraction("threshold", threshold)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the last class before the first that is not probable enough."""
        if allowed is not None:
            p = p.masked_fill(~allowed, -1.0)  # below every threshold
        chain = greedy_chain(p, self.label_space)
        passes = (chain != ROOT) & (p.gather(1, chain.clamp_min(0)) > self.threshold)
        return last_of(torch.where(passes.cumprod(dim=1).bool(), chain, ROOT))

    def calibrate(self, probabilities: Probabilities, targets: Tensor, risk: float) -> Stop:
        """Return a new decoder whose expected error rate is at most risk.

        The guarantee of ``risk_threshold``; this decoder is not changed.

        Args:
            probabilities: (n, C) of rows that the model was neither trained nor selected on.
            targets: (n, C) bool, closed.
            risk: the error rate, between 0 and 1.
        """
        threshold = risk_threshold(probabilities, targets, self.label_space, risk)
        return Stop(self.label_space, threshold)


# ---------------------------------------- conformal


class ConformalSets(Decoder):
    """The terminal classes that are probable enough, and their ancestors; trees and DAGs.

    The answer is a set of candidates: closed under ancestors, but not a label set. ``sets`` gives
    the labels that it leaves no doubt of, the classes at or above all terminal candidates;
    ``representatives`` the subtrees that it is made of.

    Args:
        label_space: the taxonomy and its terminal classes.
        threshold: the smallest v; 0 makes every class a candidate. ``calibrate`` finds it.
        spread: None chooses terminal classes one by one; a number chooses whole subtrees: how
            strongly the size of a subtree counts against it, from 0 (not at all) to 1.
    """

    answers: Answers = "candidates"

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        threshold: float = 0.0,
        spread: float | None = None,
    ) -> None:
        super().__init__(label_space)
        self.threshold = check_fraction("threshold", threshold)
        self.spread = None if spread is None else check_fraction("spread", spread)
        self.is_terminal = torch.tensor(self.label_space.is_terminal)
        if self.spread is not None:
            counted = self.hierarchy.sum_up(self.is_terminal.long())
            # In double precision, so that every device divides by the same number.
            self.size = counted.double() ** self.spread  # (C,)

    def scores(self, p: Tensor) -> Tensor:
        """Return s (n, C): how probable each terminal class is, 0 for the others."""
        if self.spread is not None:
            found = self.hierarchy.max_down(p / self.size.to(p))
        elif self.label_space.has_inner_terminals:
            found = terminal_scores(p, self.label_space).clamp_min(0)
        else:
            found = p
        return found.masked_fill(~self.is_terminal.to(p.device), 0)

    def values(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return v (n, C): the largest score of the terminal classes at or below each class."""
        scores = self.scores(p)
        return self.hierarchy.max_up(scores if allowed is None else scores * allowed)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the terminal classes that are probable enough, and their ancestors."""
        candidates = self.values(p, allowed) >= self.threshold
        return candidates if allowed is None else candidates & allowed

    @torch.no_grad()
    def calibrate(
        self, probabilities: Probabilities, targets: Tensor, risk: float
    ) -> ConformalSets:
        """Return a new decoder whose sets miss a label with probability at most risk.

        This decoder is not changed. Where v ties with the threshold the class is a candidate, so
        ties cost size and not coverage.

        Args:
            probabilities: (n, C) of rows that the model was neither trained nor selected on.
            targets: (n, C) bool, closed, at least one label per row.
            risk: the fraction of rows that may miss a label, between 0 and 1.
        """
        nodes, scores = as_tensor(probabilities), []
        rank = check_calibration(nodes, targets, self.hierarchy, risk)
        for rows, p in checked_rows(nodes, self.hierarchy, self.width):
            labels = most_specific(targets[rows], self.hierarchy)
            if not labels.any(dim=1).all():
                row = rows.start + int((~labels.any(dim=1)).nonzero()[0])
                raise HierlearnError(f"row {row} has no label; calibrate on labeled rows")
            scores.append(self.values(p).masked_fill(~labels, torch.inf).amin(dim=1))
        threshold = float(torch.cat(scores).sort().values[rank - 1])
        return ConformalSets(self.label_space, threshold, self.spread)
