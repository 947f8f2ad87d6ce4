"""Stop: walk down the greedy chain for as long as the next class is probable enough.

    the deepest c_j of the chain c_1, c_2, ... with p(c_i) > threshold for every i <= j

Where p(c_1) is too small already, the answer is the root. Threshold 1 always answers the root, 0
walks down to where p is 0. Where p adds up and the threshold is at least 0.5, at most one class per
level exceeds it, and the answer is the deepest class that does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.decoding.decoder import ROOT, Answers, Decoder
from hierlearn.decoding.probabilities import check_fraction
from hierlearn.decoding.risk import risk_threshold
from hierlearn.decoding.top_down import greedy_chain, last_of

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.decoding.probabilities import Probabilities
    from hierlearn.hierarchy import Hierarchy, LabelSpace


class Stop(Decoder):
    """The deepest class of the greedy chain that is probable enough, or the root.

    Args:
        label_space: the taxonomy, a tree or a DAG.
        threshold: what p must exceed; ``calibrate`` finds it for a bound on the error rate.
    """

    answers: Answers = "class"

    def __init__(self, label_space: LabelSpace | Hierarchy, threshold: float = 0.5) -> None:
        super().__init__(label_space)
        self.threshold = check_fraction("threshold", threshold)

    def decide(self, p: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Answer the last class before the first that is not probable enough."""
        if allowed is not None:
            p = p.masked_fill(~allowed, -1.0)  # below every threshold
        chain = greedy_chain(p, self.label_space)
        passes = (chain != ROOT) & (p.gather(1, chain.clamp_min(0)) > self.threshold)
        return last_of(torch.where(passes.cumprod(dim=1).bool(), chain, ROOT))

    def calibrate(self, probabilities: Probabilities, targets: Tensor, risk: float) -> Stop:
        """Return a new decoder whose expected error rate is at most risk.

        The guarantee of ``risk_threshold``; this decoder is not changed.

        Args:
            probabilities: (n, C) of rows that the model was neither trained nor selected on.
            targets: (n, C) bool, closed.
            risk: the error rate, between 0 and 1.
        """
        threshold = risk_threshold(probabilities, targets, self.label_space, risk)
        return Stop(self.label_space, threshold)
