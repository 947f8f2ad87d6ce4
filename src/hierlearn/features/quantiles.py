"""Quantiles: edges of bins that hold about as many training values each.

    edge t of T = the value at place floor(t (n - 1) / T) of the n known values in ascending order

Edges are values that occur, so a column of few values has few edges. They are taken from a random
sample of the rows where there are too many to sort; the outer edges are always the smallest and
the largest of all values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError
from hierlearn.features import moments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from hierlearn.features.moments import Parts

SAMPLE = 2**26  # values of the sample: 256 MiB in single precision
FEWEST = 1024  # rows of the sample, however wide they are
SEED = 0  # of the sample: equal rows give equal edges


@dataclass(frozen=True)
class Sample:
    """What one pass over N rows of D columns found.

    Attributes:
        rows: N.
        count: (D,) known values.
        low: (D,) the smallest value, infinite where none is known.
        high: (D,) the largest.
        values: (n, D) all rows, or n of them drawn at random.
    """

    rows: int
    count: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    values: NDArray[Any]


class Reservoir:
    """A uniform sample of rows that come one chunk after another.

    Every row draws a number; the ``limit`` rows with the smallest ones are kept, so the sample does
    not depend on how the rows are divided. Up to twice the limit is held.

    Args:
        limit: how many rows to keep.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._draw = np.random.default_rng(SEED)
        self._rows: list[NDArray[Any]] = []
        self._keys: list[NDArray[np.float64]] = []
        self._held = 0
        self._bound = 1.0  # rows with larger keys are not kept

    def add(self, chunk: NDArray[Any]) -> None:
        """Consider more rows."""
        keys = self._draw.random(len(chunk))
        chosen = keys < self._bound
        self._rows.append(chunk[chosen])
        self._keys.append(keys[chosen])
        self._held += len(self._keys[-1])
        if self._held > 2 * self.limit:
            self._shrink()

    def rows(self) -> NDArray[Any]:
        """Return the sample, in the order in which the rows came."""
        if self._held > self.limit:
            self._shrink()
        return np.concatenate(self._rows)

    def _shrink(self) -> None:
        keys = np.concatenate(self._keys)
        kept = np.sort(np.argpartition(keys, self.limit - 1)[: self.limit])
        self._rows, self._keys = [np.concatenate(self._rows)[kept]], [keys[kept]]
        self._held = len(kept)
        self._bound = float(self._keys[0].max())


def draw_sample(parts: Parts) -> Sample:
    """Return the extremes of the rows that ``parts`` returns, and a sample of them."""
    rows, reservoir = 0, None
    for chunk in _row_chunks(parts()):
        if reservoir is None:
            columns = chunk.shape[1]
            reservoir = Reservoir(max(FEWEST, SAMPLE // max(1, columns)))
            count = np.zeros(columns, dtype=np.int64)
            low, high = np.full(columns, np.inf), np.full(columns, -np.inf)
        rows += len(chunk)
        count += np.count_nonzero(~np.isnan(chunk), axis=0)
        low = np.fmin(low, np.fmin.reduce(chunk, axis=0))
        high = np.fmax(high, np.fmax.reduce(chunk, axis=0))
        reservoir.add(chunk)
    if reservoir is None:
        raise DataError("cannot fit on 0 rows; give the training rows")
    with np.errstate(over="ignore", invalid="ignore"):  # the result is checked
        wrong = (count > 0) & ~np.isfinite(high - low)
    if wrong.any():
        column = int(np.argmax(wrong))
        raise DataError(
            f"column {column} (counted from 0) holds numbers too far apart to subtract; scale it"
        )
    return Sample(rows, count, low, high, reservoir.rows())


def quantile_edges(sample: Sample, bins: int) -> list[NDArray[np.float64]]:
    """Return the ascending edges of up to ``bins`` bins for each column.

    T bins have T + 1 edges; a column without two different values has no bins and no edges.
    """
    found = []
    step = max(1, moments.CHUNK // max(1, len(sample.values)))  # columns that are sorted at a time
    for begin in range(0, sample.values.shape[1], step):
        columns = slice(begin, begin + step)
        ordered = np.sort(sample.values[:, columns].T, axis=1)  # NaN comes last
        known = np.count_nonzero(~np.isnan(ordered), axis=1)
        places = np.arange(bins + 1) * np.maximum(known - 1, 0)[:, None] // bins
        edges = np.take_along_axis(ordered, places, axis=1).astype(np.float64)
        edges[:, 0], edges[:, -1] = sample.low[columns], sample.high[columns]
        for row in edges:
            distinct = np.unique(row[~np.isnan(row)])  # the sample may lack the known values
            found.append(distinct if len(distinct) > 1 and row[0] < row[-1] else distinct[:0])
    return found


def _row_chunks(parts: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Divide (n, D) parts into chunks of the size that CHUNK allows, in their own dtype."""
    for part in parts:
        step = max(1, moments.CHUNK // max(1, part.shape[1]))
        for begin in range(0, len(part), step):
            yield part[begin : begin + step]
