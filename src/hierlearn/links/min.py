"""The min link: a class is at most as likely as its least likely ancestor.

    p(c) = min over c and its ancestors a of sigmoid(x_a)

Whatever the threshold, the classes above it are those whose ancestors are all above it, too: what
HMC-LMLP (Cerri et al., 2014) makes of its answers, where a predicted class without a predicted
parent is dropped. The sigmoid is monotone, so the minimum is taken over logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import logsigmoid

from hierlearn.links.link import Link

if TYPE_CHECKING:
    from torch import Tensor


class MinLink(Link):
    """The minimum over ancestors, then a sigmoid; coherent on trees and DAGs."""

    coherent = True

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log sigmoid and log sigmoid(-) of the minimum over ancestors."""
        negative = self.hierarchy.max_down(-logits)
        return logsigmoid(-negative), logsigmoid(negative)

    def log_p(self, logits: Tensor) -> Tensor:
        """Return log sigmoid of the minimum over ancestors."""
        return logsigmoid(-self.hierarchy.max_down(-logits))
