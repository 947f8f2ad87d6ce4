"""Moments: the mean and standard deviation of columns, in two passes over rows in parts.

    mean = sum of x / count,    deviation = sqrt(sum of (x - mean)^2 / N)

over the known values x of a column; count is how many are known, N the number of rows, so that a
missing value counts as the mean. The sums are taken over blocks of fixed size, so the result does
not depend on how the rows are divided into parts: a file read in parts gives bit for bit what the
same rows give in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    Parts = Callable[[], Iterable[NDArray[Any]]]

CHUNK = 2**20  # values converted to float64 at a time


@dataclass(frozen=True)
class Moments:
    """What two passes over N rows of D columns found; every array is (D,).

    Attributes:
        rows: N.
        count: known values.
        mean: 0 where no value is known.
        deviation: over all N rows.
        low: the smallest value, infinite where none is known.
        high: the largest.
    """

    rows: int
    count: NDArray[np.int64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def find_moments(parts: Parts) -> Moments:
    """Return the moments of the rows that ``parts`` returns, the same at every call."""
    rows, columns = 0, None
    with np.errstate(over="ignore", invalid="ignore"):  # the result is checked below
        for block in blocks(parts()):
            if columns is None:
                columns = block.shape[1]
                count = np.zeros(columns, dtype=np.int64)
                total = np.zeros(columns)
                low, high = np.full(columns, np.inf), np.full(columns, -np.inf)
            rows += len(block)
            count += np.count_nonzero(~np.isnan(block), axis=0)
            total += np.nansum(block, axis=0)
            low = np.fmin(low, np.fmin.reduce(block, axis=0))
            high = np.fmax(high, np.fmax.reduce(block, axis=0))
        if columns is None:
            raise DataError("cannot fit on 0 rows; give the training rows")
        mean = total / np.maximum(count, 1)
        squares = np.zeros(columns)
        # A second pass rather than a sum of squares, which cancels when the mean is large.
        for block in blocks(parts()):
            squares += np.nansum(np.square(block - mean), axis=0)
        deviation = np.sqrt(squares / rows)
    if not np.isfinite(deviation).all():
        column = int(np.argmin(np.isfinite(deviation)))
        raise DataError(
            f"column {column} (counted from 0) holds numbers too large to square; scale it"
        )
    return Moments(rows, count, mean, deviation, low, high)


def blocks(
    parts: Iterable[NDArray[Any]], width: int | None = None
) -> Iterator[NDArray[np.float64]]:
    """Divide the rows of (n, D) parts again, into float64 blocks of the size that CHUNK allows.

    Args:
        parts: the rows.
        width: how many columns a row becomes; by default D.
    """
    waiting: list[NDArray[Any]] = []
    held = 0
    for part in parts:
        step = max(1, CHUNK // max(1, width or part.shape[1]))
        while len(part):
            taken = part[: step - held]
            part = part[len(taken) :]
            waiting.append(taken)
            held += len(taken)
            if held == step:
                yield np.concatenate(waiting).astype(np.float64)
                waiting, held = [], 0
    if held:
        yield np.concatenate(waiting).astype(np.float64)
