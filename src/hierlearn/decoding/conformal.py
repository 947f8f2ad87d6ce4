"""Conformal sets: unions of subtrees that hold the truth with a promised probability.

    density(c) = p(c) / size(c)^spread,    v(c) = max over c and its ancestors a of density(a)
    candidates = {c : v(c) >= threshold}

size(c) counts the terminal classes at or below c. The candidates are everything at or below a
class whose density reaches the threshold: a union of subtrees. spread 1 takes the probability per
terminal class, which makes the sets small; towards 0 the larger subtrees are preferred, and the
sets are fewer and larger.

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
from hierlearn.decoding.probabilities import check_share, checked_rows
from hierlearn.errors import HierlearnError
from hierlearn.links.softmax import terminal_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.nodes import Label


class ConformalSets(Decoder):
    """The classes at or below one that is dense enough; trees and DAGs.

    The answer is a set of candidates: closed under descendants, not a label set. ``sets`` gives
    the labels that it leaves no doubt of, the classes at or above all candidates; ``subtrees``
    the classes whose subtrees it is made of.

    Args:
        hierarchy: the taxonomy.
        threshold: the least density; 0 makes every class a candidate. ``calibrate`` finds it.
        spread: how much a large subtree pays for its size, from 0 (nothing) to 1.
        terminals: inner classes that count as terminal too; the leaves always do.
    """

    answers: Answers = "candidates"

    def __init__(
        self,
        hierarchy: Hierarchy,
        threshold: float = 0.0,
        spread: float = 1.0,
        terminals: Iterable[Label] | None = None,
    ) -> None:
        super().__init__(hierarchy)
        self.threshold = check_share("threshold", threshold)
        self.spread = check_share("spread", spread)
        self.terminals = terminal_numbers(hierarchy, terminals)
        counted = torch.zeros(len(hierarchy), dtype=torch.long).index_fill(0, self.terminals, 1)
        # In double precision, so that every device divides by the same number.
        self.size = hierarchy.sum_up(counted).double() ** self.spread  # (C,)

    def values(self, p: Tensor) -> Tensor:
        """Return v (n, C): the largest density of a class and its ancestors."""
        return self.hierarchy.max_down(p / self.size.to(p))

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the classes at or below one that is dense enough."""
        candidates = self.values(p) >= self.threshold
        return candidates if allowed is None else candidates & allowed

    def subtrees(self, probabilities: Tensor) -> Tensor:
        """Return (N, C) bool: the topmost candidates, whose subtrees make up the set."""

        def decide(p: Tensor) -> Tensor:
            return topmost(self.decide(p), self.hierarchy)

        return self.over_rows(probabilities, decide)

    @torch.no_grad()
    def calibrate(self, probabilities: Tensor, targets: Tensor, alpha: float) -> ConformalSets:
        """Return a new decoder whose sets miss a label for at most a share alpha of the rows.

        This decoder stays as it is. Where v ties with the threshold the class is a candidate, so
        ties cost size and not coverage.

        Args:
            probabilities: (n, C) of rows that the model was neither trained nor selected on.
            targets: (n, C) bool, closed, at least one label a row.
            alpha: the share of rows that may miss a label, between 0 and 1.
        """
        rank = check_calibration(probabilities, targets, self.hierarchy, alpha)
        scores = []
        for rows, p in checked_rows(probabilities, self.hierarchy, self.width):
            labels = most_specific(targets[rows], self.hierarchy)
            if not labels.any(dim=1).all():
                row = rows.start + int((~labels.any(dim=1)).nonzero()[0])
                raise HierlearnError(f"row {row} has no label; calibrate on labeled rows")
            scores.append(self.values(p).masked_fill(~labels, torch.inf).amin(dim=1))
        threshold = float(torch.cat(scores).sort().values[rank - 1])
        return ConformalSets(self.hierarchy, threshold, self.spread, self.terminals.tolist())
