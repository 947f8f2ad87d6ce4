"""The sigmoid link: each class alone.

p(c) = 1 / (1 + exp(-x_c))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import logsigmoid

from hierlearn.links.link import Link

if TYPE_CHECKING:
    from torch import Tensor


class SigmoidLink(Link):
    """Independent probabilities; nothing stops a child from being likelier than its parent."""

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log sigmoid(x) and log sigmoid(-x)."""
        return logsigmoid(logits), logsigmoid(-logits)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return log sigmoid(x)."""
        return logsigmoid(logits)
