"""The statistics of a comparison: spread over seeds, intervals over rows, paired tests.

Runs of one seed share their batches and first weights, so losses are compared seed by seed: the
paired t-test asks whether the mean difference over seeds is more than seed noise, and Holm's
step-down correction keeps the chance of a single false claim in a family of tests at its level.
Neither tells anything about other test rows; the bootstrap over rows does. Over several datasets:
Friedman's test on ranks, and Nemenyi's critical difference (Demsar, 2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LEVEL = 0.05  # the chance of a false claim that is accepted
RESAMPLES = 2000
ROUNDING = 1e-12  # of the figures: differences that spread less are the same
INDICES = 1 << 20  # drawn at a time, so that memory does not grow with the rows


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and its standard deviation; None with a single seed."""

    mean: float
    deviation: float | None


def spread(values: Sequence[float]) -> Spread:
    """Return mean and standard deviation (n - 1) over seeds; NaN where a figure is missing."""
    if not len(values):
        raise HierlearnError("there are no runs to average")
    found = np.asarray(values, dtype=np.float64)
    deviation = float(found.std(ddof=1)) if len(found) > 1 else None
    return Spread(float(found.mean()), deviation)


def t_interval(values: Sequence[float], *, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval of Student's t for the mean; NaN with fewer than two values.

    Args:
        values: independent repetitions.
        level: the fraction left outside, half on either side.
    """
    found = np.asarray(values, dtype=np.float64)
    if len(found) < 2:
        return math.nan, math.nan
    from scipy.stats import t

    half = float(t.isf(level / 2, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found)))
    mean = float(found.mean())
    return mean - half, mean + half


def paired_test(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the two-sided p of the paired t-test; NaN with fewer than two pairs.

    Equal pairs throughout give 1: there is no difference to explain. Pairs that all differ by the
    same amount, as two seeds on few rows may by chance, give NaN: no noise is seen to test against.
    """
    if len(values) != len(others):
        raise HierlearnError(f"{len(values)} runs cannot be paired with {len(others)}")
    difference = np.asarray(values, dtype=np.float64) - np.asarray(others, dtype=np.float64)
    if len(difference) < 2 or np.isnan(difference).any():
        return math.nan
    deviation = difference.std(ddof=1)
    if deviation <= ROUNDING * max(np.abs(values).max(), np.abs(others).max()):
        return 1.0 if not difference.any() else math.nan
    from scipy.stats import t

    statistic = difference.mean() / (deviation / math.sqrt(len(difference)))
    return float(2 * t.sf(abs(statistic), len(difference) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values; NaN stays NaN and does not count as a test."""
    adjusted = [math.nan] * len(p_values)
    order = sorted(
        (number for number, p in enumerate(p_values) if not math.isnan(p)),
        key=lambda number: p_values[number],
    )
    running = 0.0
    for place, number in enumerate(order):
        running = max(running, (len(order) - place) * p_values[number])
        adjusted[number] = min(running, 1.0)
    return adjusted


def bootstrap_interval(
    rows: NDArray[np.floating[Any]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the 95 % percentile interval, over test rows, of a metric that is a mean over rows.

    Args:
        rows: (N,) one value per row, or (seeds, N); NaN where the row does not count. The means of
            the seeds are averaged.
        resamples: how often rows are drawn again.
        seed: of the draws.
    """
    values = np.atleast_2d(np.asarray(rows, dtype=np.float64))  # (S, N)
    known = ~np.isnan(values)
    if (known == known[0]).all():  # averaging over seeds first gives the same, faster
        values, known = values.mean(axis=0, keepdims=True), known[:1]
    values, known = values[:, known.any(axis=0)], known[:, known.any(axis=0)]
    count = values.shape[1]
    if not count:
        return math.nan, math.nan
    values = np.where(known, values, 0.0)
    draws = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, INDICES // values.size)
    for begin in range(0, resamples, step):
        part = means[begin : begin + step]
        drawn = draws.integers(0, count, (len(part), count))
        counted = known[:, drawn].sum(axis=2)  # (S, part)
        sums = values[:, drawn].sum(axis=2)
        part[:] = np.divide(sums, counted, where=counted > 0, out=np.full_like(sums, np.nan)).mean(
            axis=0
        )
    low, high = np.nanquantile(means, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Ranks:
    """How methods rank over datasets.

    Attributes:
        average: (k,) the mean rank of each method, 1 for the best.
        p: of Friedman's test that all rank alike.
        critical_difference: mean ranks that differ by more differ significantly (Nemenyi).
    """

    average: NDArray[np.float64]
    p: float
    critical_difference: float


def rank_methods(values: NDArray[np.float64], *, larger_is_better: bool) -> Ranks:
    """Rank methods over datasets.

    Args:
        values: (datasets, methods) one figure each.
        larger_is_better: the direction of the figure.
    """
    from scipy.stats import friedmanchisquare, rankdata, studentized_range

    table = np.asarray(values, dtype=np.float64)
    count, methods = table.shape
    if count < 2 or methods < 2:
        raise HierlearnError(
            f"ranks need at least two datasets and two methods, not {count} and {methods}"
        )
    if np.isnan(table).any():
        raise HierlearnError("ranks need a figure of every method on every dataset")
    ranks = np.stack([rankdata(-row if larger_is_better else row) for row in table])
    p = math.nan
    if methods > 2:  # Friedman's test is defined from three methods on
        p = 1.0 if (ranks == ranks[0, 0]).all() else float(friedmanchisquare(*table.T).pvalue)
    quantile = float(studentized_range.ppf(1 - LEVEL, methods, np.inf)) / math.sqrt(2)
    critical = quantile * math.sqrt(methods * (methods + 1) / (6 * count))
    return Ranks(ranks.mean(axis=0), p, critical)
