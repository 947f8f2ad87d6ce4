"""Numbers: missing values filled in, columns standardized.

    (x - mean) / deviation,    a missing x being the mean

with x the value of a column, and its mean and standard deviation taken over the training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.preprocessor import Preprocessor, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind

    Parts = Callable[[], Iterable[NDArray[Any]]]

CHUNK = 2**20  # values converted to float64 at a time


class NumberPreprocessor(Preprocessor["ArrayLike", "NDArray[np.float32]"]):
    """The base of steps that read (N, D) numbers, NaN where one is missing."""

    reads: ClassVar[Kind] = "numbers"
    _missing: NDArray[np.int64] | None = None  # (D,) training values that were missing

    def _check_fitted(self) -> None:
        if self._missing is None:
            raise self._not_fitted()

    @property
    def missing(self) -> NDArray[np.int64]:
        """(D,) how many training values of each column were missing."""
        if self._missing is None:
            raise self._not_fitted()
        missing: NDArray[np.int64] = self._missing.copy()
        return missing

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

    NaN means missing; infinity is refused. A column that is constant over the training rows is only
    centered. A column without any training value becomes 0 for all rows, because no model can have
    learned from it.

    Args:
        impute: what a missing number becomes; "mean" is the mean of the column's training values.
        standardize: whether to center and scale; otherwise numbers only become float32.
    """

    name: ClassVar[str] = "numeric"

    def __init__(self, *, impute: Literal["mean"] = "mean", standardize: bool = True) -> None:
        if impute != "mean":
            raise HierlearnError(unknown_name("impute", impute, ["mean"]))
        self.impute = impute
        self.standardize = standardize
        self._mean = np.zeros(0)  # (D,)
        self._scale = np.ones(0)  # (D,)
        self._observed = np.ones(0, dtype=bool)  # (D,) whether any training value was there

    @property
    def columns(self) -> int:
        """D, the number of columns."""
        return len(self.missing)

    def fit_parts(self, parts: Parts) -> Self:
        """Learn from training rows that do not fit into memory.

        Args:
            parts: returns the rows as (n, D) arrays, one after another; it is called twice.
        """
        found = find_moments(parts)
        # By extremes, because rounding of the mean leaves a constant column a tiny deviation.
        constant = (found.low == found.high) | (found.deviation == 0)
        self._missing = found.rows - found.count
        self._observed = found.count > 0
        self._mean = np.where(found.low == found.high, found.low, found.mean)
        self._scale = np.where(constant, 1.0, found.deviation)
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
        self._check_fitted()
        return Standardize(self._mean, self._scale, self._observed, scaled=self.standardize)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, and the arrays mean, scale, observed and missing, each (D,)."""
        settings = {"name": self.name, "impute": self.impute, "standardize": self.standardize}
        arrays = {
            "mean": self._mean,
            "scale": self._scale,
            "observed": self._observed,
            "missing": self.missing,
        }
        return settings, {key: array.copy() for key, array in arrays.items()}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a fitted preprocessor."""
        new = cls(
            impute=stored(settings, "impute"), standardize=bool(stored(settings, "standardize"))
        )
        keys = ("mean", "scale", "observed", "missing")
        mean, scale, observed, missing = (stored(arrays, key) for key in keys)
        if not mean.shape == scale.shape == observed.shape == missing.shape == (mean.size,):
            raise DataError(
                f"the stored preprocessor is damaged: mean {mean.shape}, scale {scale.shape}, "
                f"observed {observed.shape} and missing {missing.shape} must have the same length"
            )
        new._mean = mean.astype(np.float64)
        new._scale = scale.astype(np.float64)
        new._observed = observed.astype(bool)
        new._missing = missing.astype(np.int64)
        return new


# ----------------------------------------------------------------------
# Moments: the mean and standard deviation of columns, in two passes over rows in parts.
#
#     mean = sum of x / count,    deviation = sqrt(sum of (x - mean)^2 / N)
#
# over the known values x of a column; count is how many are known, N the number of rows, so that a
# missing value counts as the mean. The sums are taken over blocks of fixed size, so the result does
# not depend on how the rows are divided into parts: a file read in parts gives bit for bit what the
# same rows give in memory.


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


# ----------------------------------------------------------------------
# Rows of numbers: how they are checked, taken in chunks, and searched for missing values.


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
# Standardize: the preprocessing of numbers as a torch module, for exported graphs.


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
