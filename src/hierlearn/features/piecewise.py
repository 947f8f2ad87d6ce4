"""Piecewise-linear encoding: how far a number has come in each quantile bin of its column.

    e_t = clip((x - b_{t-1}) / (b_t - b_{t-1}), 0, 1),    t = 1 ... T

then standardized, (e_t - mean) / deviation. The edges b_0 < ... < b_T are quantiles of the training
values; mean and standard deviation of e_t are those of the training rows. Gorishniy, Rubachev and
Babenko 2022, "On Embeddings for Numerical Features in Tabular Deep Learning", equation 1. There e_1
has no lower and e_T no upper bound; here they go on for the width of one bin, to -1 and 2, so that
values a little outside of the training range can be told apart and an outlier cannot outweigh all
other inputs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.errors import DataError
from hierlearn.features import numbers
from hierlearn.features.numbers import (
    NumberPreprocessor,
    blocks,
    checked_numbers,
    chunks,
)
from hierlearn.features.preprocessor import integer_option, stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from hierlearn.features.numbers import Parts


MARGIN = 1.0  # how many bin widths the outer bins go on
SAMPLE = 2**26  # values of the sample: 256 MiB in single precision
FEWEST = 1024  # rows of the sample, however wide they are
SEED = 0  # of the sample: equal rows give equal edges


@dataclass(frozen=True)
class Bins:
    """The bins of all columns, one after another; every array is (W,), one entry per output.

    Attributes:
        source: the column that an output reads.
        place: the number of its bin in that column, from 0.
        low: where the bin begins; 0 for a column without bins.
        width: how wide it is; 1 for a column without bins.
        floor: the least value of the output before it is standardized.
        ceiling: the largest.
    """

    source: NDArray[np.int64]
    place: NDArray[np.int64]
    low: NDArray[np.float64]
    width: NDArray[np.float64]
    floor: NDArray[np.float64]
    ceiling: NDArray[np.float64]

    @classmethod
    def from_edges(cls, edges: Sequence[NDArray[np.float64]]) -> Bins:
        """Lay out the bins of columns; one without edges gets one output that is always 0."""
        none = np.zeros(1)
        low = [one[:-1] if len(one) else none for one in edges]
        width = [np.diff(one) if len(one) else none + 1 for one in edges]
        floor, ceiling = [], []
        for one in edges:
            bins = max(1, len(one) - 1)
            floor.append(np.where(np.arange(bins) == 0, -MARGIN, 0.0) * bool(len(one)))
            ceiling.append(np.where(np.arange(bins) == bins - 1, 1 + MARGIN, 1.0) * bool(len(one)))
        sizes = [len(one) for one in low]
        return cls(
            np.repeat(np.arange(len(edges)), sizes),
            np.concatenate([np.arange(0), *map(np.arange, sizes)]),
            *(np.concatenate([none[:0], *one]) for one in (low, width, floor, ceiling)),
        )

    def encode(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (n, W) encoded numbers of (n, D) rows; NaN stays NaN."""
        found = np.take(rows, self.source, axis=1)
        with np.errstate(over="ignore"):  # an infinite quotient is clipped
            found -= self.low
            found /= self.width
        np.maximum(found, self.floor, out=found)
        return np.minimum(found, self.ceiling, out=found)


class PiecewiseLinearPreprocessor(NumberPreprocessor):
    """Encode every number by the quantile bins of its column, then standardize.

    A column of few values has fewer bins, because equal edges are merged. A column without two
    different training values becomes a single 0 for all rows, because no model can have learned
    from it. NaN means missing and becomes 0, the mean, in all outputs of its column; infinity is
    refused. Quantiles are those of all training rows, or of a sample of 2^26 values where there are
    more.

    Args:
        bins: how many bins a column has at most.
    """

    name: ClassVar[str] = "piecewise-linear"
    by_default: ClassVar[bool] = False

    def __init__(self, *, bins: int = 8) -> None:
        self.bins = integer_option("bins", bins, 1, 1000)
        self._edges: list[NDArray[np.float64]] = []  # D times (T + 1,), or (0,)
        self._bins = Bins.from_edges([])
        self._mean = np.zeros(0)  # (W,)
        self._scale = np.ones(0)  # (W,)

    @property
    def columns(self) -> int:
        """W, the number of bins of all columns."""
        self._check_fitted()
        return len(self._mean)

    @property
    def edges(self) -> list[NDArray[np.float64]]:
        """The edges of the bins of each column; empty for a column without bins."""
        self._check_fitted()
        return [one.copy() for one in self._edges]

    def fit_parts(self, parts: Parts) -> Self:
        """Learn from training rows that do not fit into memory, bit for bit as ``fit`` does.

        Args:
            parts: returns the rows as (n, D) arrays, one after another; it is called twice.
        """
        sample = draw_sample(parts)
        edges = quantile_edges(sample, self.bins)
        bins = Bins.from_edges(edges)
        total, squares = np.zeros(len(bins.source)), np.zeros(len(bins.source))
        for block in blocks(parts(), len(bins.source)):
            encoded = bins.encode(block)
            if np.isnan(block).any():
                np.nan_to_num(encoded, copy=False)
            total += encoded.sum(axis=0)
            squares += np.einsum("nw,nw->w", encoded, encoded)
        # A sum of squares does, because all values lie in [0, 1]; a missing one is the mean.
        mean = total / np.maximum(sample.count, 1)[bins.source]
        deviation = np.sqrt(np.maximum(squares - total * mean, 0) / sample.rows)
        self._edges, self._bins, self._mean = edges, bins, mean
        self._scale = np.where(deviation > 0, deviation, 1.0)
        self._missing = sample.rows - sample.count
        return self

    def transform(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return (N, W) rows with nothing missing."""
        values = checked_numbers(inputs, self.input_columns)
        result = np.empty((len(values), self.columns), dtype=np.float32)
        for rows, chunk in chunks(values, self.columns):
            encoded = self._bins.encode(chunk)
            encoded -= self._mean
            encoded /= self._scale
            if np.isnan(chunk).any():
                np.nan_to_num(encoded, copy=False)
            result[rows] = encoded
        return result

    def as_module(self) -> nn.Module:
        """Return the fitted transform as a torch module, for export."""
        self._check_fitted()
        return PiecewiseLinear(self._bins, self._mean, self._scale)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings and arrays.

        The arrays are edges, those of all columns one after another; sizes and missing, (D,), the
        edges and missing values of each column; mean and scale, (W,).
        """
        edges = self.edges
        arrays = {
            "edges": np.concatenate([np.zeros(0), *edges]),
            "sizes": np.array([len(one) for one in edges], dtype=np.int64),
            "missing": self.missing,
            "mean": self._mean.copy(),
            "scale": self._scale.copy(),
        }
        return {"name": self.name, "bins": self.bins}, arrays

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        new = cls(bins=stored(settings, "bins"))
        keys = ("edges", "sizes", "missing", "mean", "scale")
        edges, sizes, missing, mean, scale = (stored(arrays, key) for key in keys)
        outputs = int(np.maximum(sizes - 1, 1).sum())
        right = (edges.shape == (sizes.sum(),), sizes.shape == missing.shape == (sizes.size,))
        if not (all(right) and mean.shape == scale.shape == (outputs,)):
            raise DataError(
                f"the stored preprocessor is damaged: edges {edges.shape}, missing "
                f"{missing.shape}, mean {mean.shape} and scale {scale.shape} must match the "
                f"{sizes.sum()} edges and {outputs} bins of {sizes.size} columns"
            )
        new._edges = np.split(edges.astype(np.float64), np.cumsum(sizes)[:-1]) if sizes.size else []
        new._bins = Bins.from_edges(new._edges)
        new._mean, new._scale = mean.astype(np.float64), scale.astype(np.float64)
        new._missing = missing.astype(np.int64)
        return new


# ----------------------------------------------------------------------
# Quantiles: edges of bins that hold about as many training values each.
#
#     edge t of T = the value at place floor(t (n - 1) / T) of the n known values in ascending order
#
# Edges are values that occur, so a column of few values has few edges. They are taken from a random
# sample of the rows where there are too many to sort; the outer edges are always the smallest and
# the largest of all values.


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
    step = max(1, numbers.CHUNK // max(1, len(sample.values)))  # columns that are sorted at a time
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
        step = max(1, numbers.CHUNK // max(1, part.shape[1]))
        for begin in range(0, len(part), step):
            yield part[begin : begin + step]


# ----------------------------------------------------------------------
# PiecewiseLinear: the piecewise-linear encoding as a torch module, for exported graphs.


class PiecewiseLinear(nn.Module):
    """Encode and standardize in double precision, as PiecewiseLinearPreprocessor does.

    Args:
        bins: of all columns.
        mean: (W,) of the encoded numbers.
        scale: (W,) their standard deviations.
    """

    source: Tensor
    place: Tensor
    low: Tensor
    width: Tensor
    floor: Tensor
    ceiling: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, bins: Bins, mean: NDArray[Any], scale: NDArray[Any]) -> None:
        super().__init__()
        for name, array in {**asdict(bins), "mean": mean, "scale": scale}.items():
            self.register_buffer(name, torch.from_numpy(array.copy()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (N, W) float32 rows with nothing missing."""
        x = inputs.double().index_select(1, self.source)
        missing = x.isnan()  # found first: graphs differ in what the maximum of NaN is
        x = (torch.where(missing, self.low, x) - self.low) / self.width
        x = torch.minimum(torch.maximum(x, self.floor), self.ceiling)
        return torch.where(missing, 0.0, (x - self.mean) / self.scale).float()

    def examples(self, noise: Tensor) -> Tensor:
        """Return raw rows spread over the bins and beyond, from (N, D) standard normal noise."""
        count = torch.bincount(self.source, minlength=noise.shape[1])  # (D,) bins
        place = (count * (0.5 + noise.double() / 3)).index_select(1, self.source) - self.place
        within = torch.minimum(torch.maximum(place, self.floor), self.ceiling)
        begin = torch.where(self.place == 0, self.low, 0.0)
        found = torch.zeros_like(noise, dtype=torch.float64)
        return found.index_add(1, self.source, within * self.width + begin).float()
