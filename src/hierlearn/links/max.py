"""The max link: a class is at least as likely as its best descendant.

    p(c) = max over c and its descendants d of sigmoid(x_d)

The coherent output of C-HMCNN (Giunchiglia and Lukasiewicz, 2020). The sigmoid is monotone, so
the maximum is taken over logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import logsigmoid

from hierlearn.links.link import Link

if TYPE_CHECKING:
    from torch import Tensor


class MaxLink(Link):
    """The maximum over descendants, then a sigmoid; coherent on trees and DAGs."""

    coherent = True

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log sigmoid and log sigmoid(-) of the maximum over descendants."""
        best = self.hierarchy.max_up(logits)
        return logsigmoid(best), logsigmoid(-best)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return log sigmoid of the maximum over descendants."""
        return logsigmoid(self.hierarchy.max_up(logits))
