"""Conformal sets: unions of subtrees that contain the truth with a guaranteed probability.

    density(c) = p(c) / size(c)^spread,    v(c) = max over c and its ancestors a of density(a)
    candidates = {c : v(c) >= threshold}

size(c) counts the terminal classes at or below c. The candidates are everything at or below a
class whose density reaches the threshold: a union of subtrees. spread 1 takes the probability per
terminal class, which makes the sets small; towards 0 larger subtrees are preferred, and a
set is made of fewer of them.

Split conformal prediction finds the threshold from n rows: the score of a row is the smallest v
among its most specific labels, and the threshold the floor(alpha (n + 1))-th smallest score. If
those rows and a new one are exchangeable, all labels of the new one are candidates with probability
at least 1 - alpha, over the draw of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.decoding.calibration import check_calibration
from hierlearn.decoding.decoder import Answers, Decoder
from hierlearn.decoding.edges import most_specific, topmost
from hierlearn.decoding.probabilities import as_tensor, check_fraction, checked_rows
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.decoding.probabilities import Probabilities
    from hierlearn.hierarchy import Hierarchy, LabelSpace


class ConformalSets(Decoder):
    """The classes at or below one that is dense enough; trees and DAGs.

    The answer is a set of candidates: closed under descendants, not a label set. ``sets`` gives
    the labels that it leaves no doubt of, the classes at or above all candidates; ``subtrees``
    the classes whose subtrees it is made of.

    Args:
        label_space: the taxonomy and its terminal classes.
        threshold: the smallest density; 0 makes every class a candidate. ``calibrate`` finds it.
        spread: how strongly the size of a subtree counts against it, from 0 (not at all) to 1.
    """

    answers: Answers = "candidates"

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        threshold: float = 0.0,
        spread: float = 1.0,
    ) -> None:
        super().__init__(label_space)
        self.threshold = check_fraction("threshold", threshold)
        self.spread = check_fraction("spread", spread)
        counted = torch.tensor(self.label_space.is_terminal).long()
        # In double precision, so that every device divides by the same number.
        self.size = self.hierarchy.sum_up(counted).double() ** self.spread  # (C,)

    def values(self, p: Tensor) -> Tensor:
        """Return v (n, C): the largest density of a class and its ancestors."""
        return self.hierarchy.max_down(p / self.size.to(p))

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the classes at or below one that is dense enough."""
        candidates = self.values(p) >= self.threshold
        return candidates if allowed is None else candidates & allowed

    def representatives(self, probabilities: Probabilities) -> Tensor:
        """Return (N, C) bool: the topmost candidates, whose subtrees make up the set."""

        def decide(p: Tensor) -> Tensor:
            return topmost(self.decide(p), self.hierarchy)

        return self.over_rows(probabilities, decide)

    @torch.no_grad()
    def calibrate(
        self, probabilities: Probabilities, targets: Tensor, alpha: float
    ) -> ConformalSets:
        """Return a new decoder whose sets miss a label with probability at most alpha.

        This decoder is not changed. Where v ties with the threshold the class is a candidate, so
        ties cost size and not coverage.

        Args:
            probabilities: (n, C) of rows that the model was neither trained nor selected on.
            targets: (n, C) bool, closed, at least one label per row.
            alpha: the fraction of rows that may miss a label, between 0 and 1.
        """
        nodes, scores = as_tensor(probabilities), []
        rank = check_calibration(nodes, targets, self.hierarchy, alpha)
        for rows, p in checked_rows(nodes, self.hierarchy, self.width):
            labels = most_specific(targets[rows], self.hierarchy)
            if not labels.any(dim=1).all():
                row = rows.start + int((~labels.any(dim=1)).nonzero()[0])
                raise HierlearnError(f"row {row} has no label; calibrate on labeled rows")
            scores.append(self.values(p).masked_fill(~labels, torch.inf).amin(dim=1))
        threshold = float(torch.cat(scores).sort().values[rank - 1])
        return ConformalSets(self.label_space, threshold, self.spread)
