"""The threshold of `stop` that keeps the expected error rate at or below a risk.

Conformal risk control (Angelopoulos et al., 2022) for the loss "the answer is none of the row's
labels and their ancestors". The root is never wrong. On the greedy chain c_1, c_2, ... of a row
let c_f be the first class that is not in its targets; whatever follows is wrong as well, so the
row errs at threshold t exactly where the walk passes c_f:

    s = min over i <= f of p(c_i) > t,    s = 0 where no class of the chain is wrong

The loss falls in t, so the threshold is the smallest t among 0 and the scores s of n rows with

    (number of scores above t + 1) / (n + 1) <= risk.

If those rows and a new one are exchangeable, the new one's answer is wrong with probability at most
risk, over the draw of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hierlearn.decoding.calibration import check_calibration
from hierlearn.decoding.decoder import ROOT
from hierlearn.decoding.probabilities import as_tensor, checked_rows
from hierlearn.decoding.top_down import greedy_chain
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.structure import row_width

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.decoding.probabilities import Probabilities
    from hierlearn.hierarchy import Hierarchy


@torch.no_grad()
def risk_threshold(
    probabilities: Probabilities,
    targets: Tensor,
    label_space: LabelSpace | Hierarchy,
    risk: float,
) -> float:
    """Return the smallest threshold that conformal risk control allows for a risk.

    The threshold is one of the probabilities or 0, exact in their precision, so that ``Stop``
    makes the same comparison; predict in the precision that was calibrated in.

    Args:
        probabilities: (n, C) of rows that the model was neither trained nor selected on.
        targets: (n, C) bool, closed.
        label_space: the taxonomy, a tree or a DAG.
        risk: the error rate, between 0 and 1.

    Raises:
        HierlearnError: if there are too few rows, or the targets are not suitable.
    """
    hierarchy = LabelSpace.of(label_space).hierarchy
    nodes = as_tensor(probabilities)
    rank = check_calibration(nodes, targets, hierarchy, risk)
    scores = [
        error_scores(p, targets[rows], hierarchy)
        for rows, p in checked_rows(nodes, hierarchy, row_width(hierarchy))
    ]
    # At the rank-th largest score, fewer than ``rank`` lie above.
    return float(torch.cat(scores).sort(descending=True).values[rank - 1])


def error_scores(p: Tensor, targets: Tensor, hierarchy: Hierarchy) -> Tensor:
    """Return (n,) the score s of each row: it errs at every threshold below."""
    chain = greedy_chain(p, hierarchy)  # (n, L)
    place = chain.clamp_min(0)
    smallest = p.gather(1, place).cummin(dim=1).values
    wrong = (chain != ROOT) & ~targets.gather(1, place)
    first = wrong.int().argmax(dim=1, keepdim=True)
    score = smallest.gather(1, first).squeeze(1)
    return torch.where(wrong.any(dim=1), score, 0.0)
