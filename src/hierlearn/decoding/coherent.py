"""Coherent: the classes at or above one that is probable enough.

    S = {c : max over c and its descendants d of p(d) >= threshold}

The maximum makes p coherent, so that S is closed under ancestors whatever the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.decoding.decoder import Answers, Decoder
from hierlearn.decoding.probabilities import check_share

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


class Coherent(Decoder):
    """The set of classes whose p, or that of a descendant, reaches the threshold.

    Args:
        hierarchy: the taxonomy.
        threshold: the least p of a class in the set.
    """

    answers: Answers = "set"

    def __init__(self, hierarchy: Hierarchy, threshold: float = 0.5) -> None:
        super().__init__(hierarchy)
        self.threshold = check_share("threshold", threshold)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Carry p upward and compare."""
        chosen = self.hierarchy.max_up(p) >= self.threshold
        return chosen if allowed is None else chosen & allowed
