"""Argmax: the most probable class of all, inner ones included, as in the paper.

    c = argmax over all classes of p

Ties go to the first class, so to the shallowest. Under a coherent link a class is never more
probable than its parent, so the answer is a top class; under the sigmoid link it may lie anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.decoding.decoder import Answers, Decoder

if TYPE_CHECKING:
    from torch import Tensor


class Argmax(Decoder):
    """The most probable class of all.

    Args:
        label_space: the taxonomy.
    """

    answers: Answers = "class"

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the first class of largest p."""
        if allowed is not None:
            p = p.masked_fill(~allowed, -1.0)  # below every probability
        return p.argmax(dim=1)
