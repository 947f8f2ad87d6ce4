"""Stop: walk down the greedy chain for as long as the next class is probable enough.

    the deepest c_j of the chain c_1, c_2, ... with p(c_i) > threshold for every i <= j

Before the first class of it the walk stands at the root, which is the answer where p(c_1) is too
small already. Threshold 1 always answers the root, 0 walks on to where p is 0. Where p adds up and
the threshold is at least 0.5, at most one class a level passes it, and the answer is the deepest
class of all that does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.decoding.decoder import ROOT, Answers, Decoder
from hierlearn.decoding.probabilities import check_share
from hierlearn.decoding.risk import risk_threshold
from hierlearn.decoding.top_down import greedy_chain, last_of

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy


class Stop(Decoder):
    """The deepest class of the greedy chain that is probable enough, or the root.

    Args:
        hierarchy: the taxonomy, a tree or a DAG.
        threshold: what p must exceed; ``calibrate`` finds it for a bound on the share of errors.
    """

    answers: Answers = "class"

    def __init__(self, hierarchy: Hierarchy, threshold: float = 0.5) -> None:
        super().__init__(hierarchy)
        self.threshold = check_share("threshold", threshold)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the last class before the first that is not probable enough."""
        if allowed is not None:
            p = p.masked_fill(~allowed, -1.0)  # below every threshold
        chain = greedy_chain(p, self.hierarchy)
        passes = (chain != ROOT) & (p.gather(1, chain.clamp_min(0)) > self.threshold)
        return last_of(torch.where(passes.cumprod(dim=1).bool(), chain, ROOT))

    def calibrate(self, probabilities: Tensor, targets: Tensor, alpha: float) -> Stop:
        """Return a new decoder whose answers are wrong for at most a share alpha of the rows.

        The promise of ``risk_threshold``; this decoder stays as it is.

        Args:
            probabilities: (n, C) of rows that the model was neither trained nor selected on.
            targets: (n, C) bool, closed.
            alpha: the share of wrong answers, between 0 and 1.
        """
        return Stop(self.hierarchy, risk_threshold(probabilities, targets, self.hierarchy, alpha))
