"""Coherent: the classes at or above one that is probable enough.

    S = {c : max over c and its descendants d of p(d) >= threshold}

The maximum makes p coherent, so that S is closed under ancestors whatever the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.decoding.decoder import Answers, Decoder
from hierlearn.decoding.probabilities import check_fraction

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace


class Coherent(Decoder):
    """The set of classes whose p, or that of a descendant, reaches the threshold.

    Args:
        label_space: the taxonomy.
        threshold: the smallest p of a class in the set.
    """

    answers: Answers = "set"

    def __init__(self, label_space: LabelSpace | Hierarchy, threshold: float = 0.5) -> None:
        super().__init__(label_space)
        self.threshold = check_fraction("threshold", threshold)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Take the maximum over the descendants and compare."""
        chosen = self.hierarchy.max_up(p) >= self.threshold
        return chosen if allowed is None else chosen & allowed
