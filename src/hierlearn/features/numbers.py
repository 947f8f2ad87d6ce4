"""Numbers: missing values filled in, columns standardized, or encoded by quantile bins.

``NumericPreprocessor`` returns, with the mean and standard deviation of a column over the training
rows,

    (x - mean) / deviation,    a missing x being the mean

``PiecewiseLinearPreprocessor`` returns how far x has come in each bin t = 1 ... T of its column,

    e_t = clip((x - b_{t-1}) / (b_t - b_{t-1}), 0, 1)

then standardized. The edges b_0 < ... < b_T are quantiles of the training values. Gorishniy,
Rubachev and Babenko 2022, "On Embeddings for Numerical Features in Tabular Deep Learning", equation
1. There e_1 has no lower and e_T no upper bound; here they go on for the width of one bin, to -1
and 2, so that values a little outside of the training range can be told apart and an outlier cannot
outweigh all other inputs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.errors import DataError
from hierlearn.features.preprocessor import Preprocessor, integer_option, stored, stored_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind

    Parts = Callable[[], Iterable[NDArray[Any]]]

CHUNK = 2**20  # values converted to float64 at a time
MARGIN = 1.0  # how many bin widths the outer bins go on
SAMPLE = 2**26  # values of the sample: 256 MiB in single precision
FEWEST = 1024  # rows of the sample, however wide they are
SEED = 0  # of the sample: equal rows give equal edges


class NumberPreprocessor(Preprocessor["ArrayLike", "NDArray[np.float32]"]):
    """The base of steps that read (N, D) numbers, NaN where one is missing."""

    reads: ClassVar[Kind] = "numbers"
    _missing: NDArray[np.int64] | None = None  # (D,) training values that were missing

    @property
    def missing(self) -> NDArray[np.int64]:
        """(D,) how many training values of each column were missing."""
        found: NDArray[np.int64] = self._learned(self._missing).copy()
        return found

    @property
    def input_columns(self) -> int:
        """D, the number of columns that ``transform`` reads."""
        return len(self.missing)

    def fit(self, inputs: ArrayLike) -> Self:
        """Learn from (N, D) training rows."""
        values = checked_numbers(inputs)
        return self.fit_parts(lambda: [values])

    def newly_missing(self, inputs: ArrayLike) -> dict[int, NDArray[np.int64]]:
        """Return the rows of NaN, for each column that has any and had none in training."""
        values = np.asarray(inputs)
        complete = self.missing == 0  # (D,)
        if values.dtype.kind != "f" or values.shape[1:] != complete.shape:
            return {}
        wrong = np.isnan(values) & complete
        columns = np.flatnonzero(wrong.any(axis=0)).tolist()
        return {column: np.flatnonzero(wrong[:, column]) for column in columns}


class NumericPreprocessor(NumberPreprocessor):
    """Fill in missing numbers, then scale every column to mean 0 and standard deviation 1.

    NaN means missing and becomes the mean; infinity is refused. A column that is constant over the
    training rows is only centered. A column without any training value becomes 0 for all rows,
    because no model can have learned from it.

    Args:
        standardize: whether to center and scale; otherwise numbers only become float32.
    """

    name: ClassVar[str] = "numeric"

    def __init__(self, *, standardize: bool = True) -> None:
        self.standardize = standardize
        self._mean = np.zeros(0)  # (D,)
        self._scale = np.ones(0)  # (D,)
        self._observed = np.ones(0, dtype=bool)  # (D,) whether any training value was there

    @property
    def columns(self) -> int:
        """D, the number of columns."""
        return len(self.missing)

    def fit_parts(self, parts: Parts) -> Self:
        """Learn from training rows that do not fit into memory, bit for bit as ``fit`` does.

        A missing value counts as the mean, so that it does not change the deviation.

        Args:
            parts: returns the rows as (n, D) arrays, one after another; it is called twice.
        """
        known = Extremes()
        total: Any = 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # the result is checked below
            for block in blocks(parts()):
                known.add(block)
                total = total + np.nansum(block, axis=0)
            known.check()
            mean = total / np.maximum(known.count, 1)
            # A second pass rather than a sum of squares, which cancels when the mean is large.
            squares = np.zeros(len(mean))
            for block in blocks(parts()):
                squares += np.nansum(np.square(block - mean), axis=0)
            deviation = np.sqrt(squares / known.rows)
        if not np.isfinite(deviation).all():
            column = int(np.argmin(np.isfinite(deviation)))
            raise DataError(
                f"column {column} (counted from 0) holds numbers too large to square; scale it"
            )
        # By extremes, because rounding of the mean leaves a constant column a tiny deviation.
        constant = known.low == known.high
        self._missing = known.rows - known.count
        self._observed = known.count > 0
        self._mean = np.where(constant, known.low, mean)
        self._scale = np.where(constant | (deviation == 0), 1.0, deviation)
        return self

    def transform(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return (N, D) rows with nothing missing."""
        values = checked_numbers(inputs, self.columns)
        result = np.empty(values.shape, dtype=np.float32)
        with np.errstate(over="ignore"):  # the result is checked below
            for rows, chunk in chunks(values):
                filled = np.where(np.isnan(chunk), self._mean, chunk)
                if self.standardize:
                    filled = (filled - self._mean) / self._scale
                result[rows] = filled
        result[:, ~self._observed] = 0
        refuse(~np.isfinite(result), values, "does not fit float32 when transformed")
        return result

    def as_module(self) -> nn.Module:
        """Return the fitted transform as a torch module, for export."""
        self._learned(self._missing)
        return Standardize(self._mean, self._scale, self._observed, scaled=self.standardize)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, and the arrays mean, scale, observed and missing, each (D,)."""
        missing = self.missing
        arrays = {name: getattr(self, f"_{name}").copy() for name in ("mean", "scale", "observed")}
        return {"name": self.name, "standardize": self.standardize}, {**arrays, "missing": missing}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        new = cls(standardize=bool(stored(settings, "standardize")))
        kinds = {"mean": float, "scale": float, "observed": bool, "missing": np.int64}
        size = (stored(arrays, "mean").size,)
        for name, kind in kinds.items():
            setattr(new, f"_{name}", stored_array(arrays, name, size).astype(kind))
        return new


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
        self._learned(self._missing)
        return len(self._mean)

    @property
    def edges(self) -> list[NDArray[np.float64]]:
        """The edges of the bins of each column; empty for a column without bins."""
        self._learned(self._missing)
        return [one.copy() for one in self._edges]

    def fit_parts(self, parts: Parts) -> Self:
        """Learn from training rows that do not fit into memory, bit for bit as ``fit`` does.

        Args:
            parts: returns the rows as (n, D) arrays, one after another; it is called twice.
        """
        known, sample = draw_sample(parts)
        edges = quantile_edges(known, sample, self.bins)
        bins = Bins.from_edges(edges)
        total, squares = np.zeros(len(bins.source)), np.zeros(len(bins.source))
        for block in blocks(parts(), len(bins.source)):
            encoded = bins.encode(block)
            if np.isnan(block).any():
                np.nan_to_num(encoded, copy=False)
            total += encoded.sum(axis=0)
            squares += np.einsum("nw,nw->w", encoded, encoded)
        # A sum of squares does, because all values lie in [0, 1]; a missing one is the mean.
        mean = total / np.maximum(known.count, 1)[bins.source]
        deviation = np.sqrt(np.maximum(squares - total * mean, 0) / known.rows)
        self._edges, self._bins, self._mean = edges, bins, mean
        self._scale = np.where(deviation > 0, deviation, 1.0)
        self._missing = known.rows - known.count
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
        self._learned(self._missing)
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
        sizes = stored(arrays, "sizes")
        outputs = (int(np.maximum(sizes - 1, 1).sum()),)
        new._missing = stored_array(arrays, "missing", sizes.shape).astype(np.int64)
        new._mean = stored_array(arrays, "mean", outputs).astype(np.float64)
        new._scale = stored_array(arrays, "scale", outputs).astype(np.float64)
        edges = stored_array(arrays, "edges", (int(sizes.sum()),)).astype(np.float64)
        new._edges = np.split(edges, np.cumsum(sizes)[:-1]) if sizes.size else []
        new._bins = Bins.from_edges(new._edges)
        return new


# ----------------------------------------------------------------------
# Quantiles: edges of bins that hold about as many training values each.
#
#     edge t of T = the value at place floor(t (n - 1) / T) of the n known values in ascending order
#
# Edges are values that occur, so a column of few values has few edges. They are taken from a random
# sample of the rows where there are too many to sort; the outer edges are always the smallest and
# the largest of all values.


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


def draw_sample(parts: Parts) -> tuple[Extremes, NDArray[Any]]:
    """Return the extremes of the rows that ``parts`` returns, and (n, D) of them, or all."""
    known, reservoir = Extremes(), None
    for block in blocks(parts(), dtype=None):
        if reservoir is None:
            reservoir = Reservoir(max(FEWEST, SAMPLE // max(1, block.shape[1])))
        known.add(block)
        reservoir.add(block)
    known.check()
    with np.errstate(over="ignore", invalid="ignore"):  # the result is checked
        wrong = (known.count > 0) & ~np.isfinite(known.high - known.low)
    if wrong.any():
        column = int(np.argmax(wrong))
        raise DataError(
            f"column {column} (counted from 0) holds numbers too far apart to subtract; scale it"
        )
    assert reservoir is not None
    return known, reservoir.rows()


def quantile_edges(known: Extremes, sample: NDArray[Any], bins: int) -> list[NDArray[np.float64]]:
    """Return the ascending edges of up to ``bins`` bins for each column.

    T bins have T + 1 edges; a column without two different values has no bins and no edges.
    """
    found = []
    step = max(1, CHUNK // max(1, len(sample)))  # columns that are sorted at a time
    for begin in range(0, sample.shape[1], step):
        columns = slice(begin, begin + step)
        ordered = np.sort(sample[:, columns].T, axis=1)  # NaN comes last
        count = np.count_nonzero(~np.isnan(ordered), axis=1)
        places = np.arange(bins + 1) * np.maximum(count - 1, 0)[:, None] // bins
        edges = np.take_along_axis(ordered, places, axis=1).astype(np.float64)
        edges[:, 0], edges[:, -1] = known.low[columns], known.high[columns]
        for row in edges:
            distinct = np.unique(row[~np.isnan(row)])  # the sample may lack the known values
            found.append(distinct if len(distinct) > 1 and row[0] < row[-1] else distinct[:0])
    return found


# ----------------------------------------------------------------------
# Rows of numbers: how they are checked and taken in blocks. Blocks are of fixed size, so that sums
# over them do not depend on how the rows are divided into parts: a file read in parts gives bit for
# bit what the same rows give in memory.


@dataclass
class Extremes:
    """What is found in the blocks of N rows of D columns.

    Attributes:
        rows: N.
        count: (D,) known values.
        low: (D,) the smallest value, infinite where none is known.
        high: (D,) the largest.
    """

    rows: int = 0
    count: Any = 0
    low: Any = np.inf
    high: Any = -np.inf

    def add(self, block: NDArray[Any]) -> None:
        """Take in more rows."""
        self.rows += len(block)
        self.count = self.count + np.count_nonzero(~np.isnan(block), axis=0)
        self.low = np.fmin(self.low, np.fmin.reduce(block, axis=0), dtype=np.float64)
        self.high = np.fmax(self.high, np.fmax.reduce(block, axis=0), dtype=np.float64)

    def check(self) -> None:
        """Raise where there were no rows."""
        if not self.rows:
            raise DataError("cannot fit on 0 rows; give the training rows")


def blocks(
    parts: Iterable[NDArray[Any]], width: int | None = None, dtype: Any = np.float64
) -> Iterator[NDArray[Any]]:
    """Divide the rows of (n, D) parts again, into blocks of the size that CHUNK allows.

    Args:
        parts: the rows.
        width: how many columns a row becomes; by default D.
        dtype: of the blocks; None for that of the rows.
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
                yield np.concatenate(waiting, dtype=dtype)
                waiting, held = [], 0
    if held:
        yield np.concatenate(waiting, dtype=dtype)


def checked_numbers(inputs: ArrayLike, columns: int | None = None) -> NDArray[Any]:
    """Return inputs as an (N, D) array of real numbers without infinities, in their own dtype.

    Args:
        inputs: NaN where a value is missing.
        columns: D of the training rows; None allows any.
    """
    values = np.asarray(inputs)
    if values.ndim != 2:
        raise DataError(
            f"inputs {values.shape} must be (N, D): one row per example, one column per value"
        )
    if values.dtype.kind not in "fiub":
        raise DataError(
            f"inputs are of dtype {values.dtype}, not numbers; mark missing values with NaN"
        )
    if values.dtype.kind == "f":
        refuse(np.isinf(values), values, "is not a finite number; mark missing values with NaN")
    if columns is not None and values.shape[1] != columns:
        raise DataError(
            f"inputs have {values.shape[1]} columns but {columns} were fitted; "
            f"give the columns of the training rows"
        )
    return values


def refuse(wrong: NDArray[np.bool_], values: NDArray[Any], reason: str) -> None:
    """Raise an error that names the first wrong value, if there is one."""
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise DataError(
            f"row {row}, column {column} (counted from 0): {values[row, column].item()} {reason}"
        )


def chunks(
    values: NDArray[Any], width: int | None = None
) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield slices of rows, and the rows as float64: all of them at once might not fit.

    Args:
        values: (N, D) numbers.
        width: how many columns a row becomes; by default D.
    """
    step = max(1, CHUNK // max(1, width or values.shape[1]))
    for begin in range(0, len(values), step):
        rows = slice(begin, begin + step)
        yield rows, values[rows].astype(np.float64)


# ----------------------------------------------------------------------
# Both as torch modules, for exported graphs.


class Standardize(nn.Module):
    """Fill in missing numbers and standardize in double precision, as NumericPreprocessor does.

    Args:
        mean: (D,) what a missing number becomes.
        scale: (D,) the standard deviations.
        observed: (D,) whether any training value was there; other columns become 0.
        scaled: whether to center and scale; otherwise missing numbers are only filled in.
    """

    mean: Tensor
    scale: Tensor
    observed: Tensor

    def __init__(
        self, mean: NDArray[Any], scale: NDArray[Any], observed: NDArray[Any], *, scaled: bool
    ) -> None:
        super().__init__()
        self.scaled = scaled
        for name, array in (("mean", mean), ("scale", scale), ("observed", observed)):
            self.register_buffer(name, torch.from_numpy(array.copy()))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (N, D) float32 rows with nothing missing."""
        x = inputs.double()
        x = torch.where(x.isnan(), self.mean, x)
        if self.scaled:
            x = (x - self.mean) / self.scale
        return torch.where(self.observed, x, 0.0).float()

    def examples(self, noise: Tensor) -> Tensor:
        """Return raw rows that spread like the training rows, from (N, D) standard normal noise."""
        return (noise * self.scale + self.mean).float()


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
