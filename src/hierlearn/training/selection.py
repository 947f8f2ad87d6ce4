"""Selection: the weights of a blend by greedy forward selection on held-out predictions.

Beginning with nothing, the answer is added whose average with those already chosen is best, again
and again, with replacement (Caruana et al., 2004); an answer chosen k times of n has weight k / n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hierlearn.metrics import find_metric
from hierlearn.metrics.measure import compute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from hierlearn.hierarchy import LabelSpace

PICKS = 16
CODES = 1 << 15  # half-precision numbers from 0 up


@dataclass(frozen=True)
class Selection:
    """The result.

    Attributes:
        weights: of the answers that were chosen; they sum to 1.
        value: of the metric, for their average; None where nothing was compared.
        single: of the metric, for every answer alone.
    """

    weights: dict[str, float]
    value: float | None
    single: dict[str, float]


def select(
    predictions: Mapping[str, Tensor],
    score: Callable[[Tensor], float],
    *,
    picks: int = PICKS,
    larger: bool = True,
) -> Selection:
    """Choose the weights under which an average of predictions is best.

    Args:
        predictions: (N, C) held-out probabilities of every answer.
        score: of an average, such as ``scorer`` returns.
        picks: how many answers to choose, with replacement; the best number of them is kept.
        larger: whether a larger score is better.
    """
    sign = 1.0 if larger else -1.0
    single = {name: score(p) for name, p in predictions.items()}
    counts = dict.fromkeys(predictions, 0)
    total: Tensor | None = None
    best: tuple[float, dict[str, int]] | None = None
    for pick in range(1, picks + 1):
        if total is None:
            values = dict(single)
        else:
            values = {name: score((total + p) / pick) for name, p in predictions.items()}
        chosen = max(values, key=lambda name: sign * values[name])
        counts[chosen] += 1
        total = predictions[chosen].clone() if total is None else total.add_(predictions[chosen])
        if best is None or sign * values[chosen] > sign * best[0]:
            best = values[chosen], dict(counts)
    assert best is not None
    value, kept = best
    picked = sum(kept.values())
    return Selection({k: n / picked for k, n in kept.items() if n}, value, single)


def scorer(
    metric: str, targets: Tensor, label_space: LabelSpace, mask: Tensor | None = None
) -> Callable[[Tensor], float]:
    """Return what scores (N, C) probabilities by a metric.

    AU(PRC) pools all entries; it is computed from probabilities in half precision, which sorts
    millions of them by counting.

    Args:
        metric: a name of METRICS, one number.
        targets: (N, C) closed multi-hot.
        label_space: what can be predicted.
        mask: (N, C) which targets are known; None for all.
    """
    if metric == "au-prc":
        return lambda p: counted_average_precision(p, targets, mask)

    def score(p: Tensor) -> float:
        return float(compute(metric, p, targets, label_space, mask))

    return score


def counted_average_precision(p: Tensor, targets: Tensor, mask: Tensor | None = None) -> float:
    """Return the average precision of all entries, with p rounded to half precision.

    Args:
        p: (N, C) probabilities.
        targets: (N, C) what is true.
        mask: (N, C) which entries count; None for all.
    """
    codes = p.half().view(torch.int16).reshape(-1).long()  # grows with p, which is at least 0
    truth = targets.reshape(-1)
    if mask is not None:
        codes, truth = codes[mask.reshape(-1)], truth[mask.reshape(-1)]
    every = torch.bincount(codes, minlength=CODES).flip(0).double()
    true = torch.bincount(codes[truth], minlength=CODES).flip(0).double()
    found = true.cumsum(0)
    precision = found / every.cumsum(0).clamp_min(1)
    return float((precision * true).sum() / found[-1].clamp_min(1))


def is_larger_better(metric: str) -> bool:
    """Whether a metric is better where it is larger."""
    return find_metric(metric).direction == "up"
