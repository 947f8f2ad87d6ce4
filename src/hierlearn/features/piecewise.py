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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hierlearn.errors import DataError
from hierlearn.features.moments import blocks
from hierlearn.features.number_rows import checked_numbers, chunks, newly_missing
from hierlearn.features.preprocessor import Preprocessor, integer_option, stored
from hierlearn.features.quantiles import draw_sample, quantile_edges

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray
    from torch import nn
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind
    from hierlearn.features.moments import Parts

MARGIN = 1.0  # how many bin widths the outer bins go on


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


class PiecewiseLinearPreprocessor(Preprocessor["ArrayLike", "NDArray[np.float32]"]):
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
    reads: ClassVar[Kind] = "numbers"
    by_default: ClassVar[bool] = False
    produces: ClassVar[Literal["numbers", "sparse"]] = "numbers"

    def __init__(self, *, bins: int = 8) -> None:
        self.bins = integer_option("bins", bins, 1, 1000)
        self._edges: list[NDArray[np.float64]] | None = None  # D times (T + 1,), or (0,)
        self._bins = Bins.from_edges([])
        self._mean = np.zeros(0)  # (W,)
        self._scale = np.ones(0)  # (W,)
        self._missing = np.zeros(0, dtype=np.int64)  # (D,) training values that were missing

    @property
    def columns(self) -> int:
        """W, the number of bins of all columns."""
        self._check_fitted()
        return len(self._mean)

    @property
    def input_columns(self) -> int:
        """D, the number of columns that ``transform`` reads."""
        return len(self.missing)

    @property
    def edges(self) -> list[NDArray[np.float64]]:
        """The edges of the bins of each column; empty for a column without bins."""
        if self._edges is None:
            raise self._not_fitted()
        return [one.copy() for one in self._edges]

    def fit(self, inputs: ArrayLike) -> Self:
        """Learn the bins of each column of (N, D) training rows."""
        values = checked_numbers(inputs)
        return self.fit_parts(lambda: [values])

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

    @property
    def missing(self) -> NDArray[np.int64]:
        """(D,) how many training values of each column were missing."""
        self._check_fitted()
        missing: NDArray[np.int64] = self._missing.copy()
        return missing

    def newly_missing(self, inputs: ArrayLike) -> dict[int, NDArray[np.int64]]:
        """Return the rows of NaN, for each column that has any and had none in training."""
        return newly_missing(inputs, self.missing)

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
        from hierlearn.features.piecewise_module import PiecewiseLinear

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
            "missing": self._missing.copy(),
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

    def _check_fitted(self) -> None:
        if self._edges is None:
            raise self._not_fitted()
