"""Conformal sets: candidates that contain the truth with a guaranteed probability.

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

from typing import TYPE_CHECKING

import torch

from hierlearn.decoding.calibration import check_calibration
from hierlearn.decoding.decoder import Answers, Decoder
from hierlearn.decoding.edges import most_specific
from hierlearn.decoding.mass import terminal_scores
from hierlearn.decoding.probabilities import as_tensor, check_fraction, checked_rows
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.decoding.probabilities import Probabilities
    from hierlearn.hierarchy import Hierarchy, LabelSpace


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
