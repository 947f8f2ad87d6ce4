"""Numbers: missing values filled in, columns standardized.

    (x - mean) / deviation,    a missing x being the mean

with x the value of a column, and its mean and standard deviation taken over the training rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.features.moments import find_moments
from hierlearn.features.number_rows import checked_numbers, chunks, newly_missing, refuse
from hierlearn.features.preprocessor import Preprocessor, stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray
    from torch import nn
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind
    from hierlearn.features.moments import Parts


class NumericPreprocessor(Preprocessor["ArrayLike", "NDArray[np.float32]"]):
    """Fill in missing numbers, then scale every column to mean 0 and standard deviation 1.

    NaN means missing; infinity is refused. A column that is constant over the training rows is only
    centered. A column without any training value becomes 0 for all rows, because no model can have
    learned from it.

    Args:
        impute: what a missing number becomes; "mean" is the mean of the column's training values.
        standardize: whether to center and scale; otherwise numbers only become float32.
    """

    name: ClassVar[str] = "numeric"
    reads: ClassVar[Kind] = "numbers"
    produces: ClassVar[Literal["numbers", "sparse"]] = "numbers"

    def __init__(self, *, impute: Literal["mean"] = "mean", standardize: bool = True) -> None:
        if impute != "mean":
            raise HierlearnError(unknown_name("impute", impute, ["mean"]))
        self.impute = impute
        self.standardize = standardize
        self._mean: NDArray[np.float64] | None = None  # (D,)
        self._scale = np.ones(0)  # (D,)
        self._observed = np.ones(0, dtype=bool)  # (D,) whether any training value was there
        self._missing = np.zeros(0, dtype=np.int64)  # (D,) training values that were missing

    @property
    def columns(self) -> int:
        """D, the number of columns."""
        if self._mean is None:
            raise self._not_fitted()
        return len(self._mean)

    @property
    def input_columns(self) -> int:
        """D, the number of columns."""
        return self.columns

    def fit(self, inputs: ArrayLike) -> Self:
        """Learn the mean and the standard deviation of each column of (N, D) training rows."""
        values = checked_numbers(inputs)
        return self.fit_parts(lambda: [values])

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

    @property
    def missing(self) -> NDArray[np.int64]:
        """(D,) how many training values of each column were missing."""
        if self._mean is None:
            raise self._not_fitted()
        missing: NDArray[np.int64] = self._missing.copy()
        return missing

    def newly_missing(self, inputs: ArrayLike) -> dict[int, NDArray[np.int64]]:
        """Return the rows of NaN, for each column that has any and had none in training."""
        return newly_missing(inputs, self.missing)

    def transform(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return (N, D) rows with nothing missing."""
        if self._mean is None:
            raise self._not_fitted()
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
        from hierlearn.features.standardize import Standardize

        if self._mean is None:
            raise self._not_fitted()
        return Standardize(self._mean, self._scale, self._observed, scaled=self.standardize)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings, and the arrays mean, scale, observed and missing, each (D,)."""
        if self._mean is None:
            raise self._not_fitted()
        settings = {"name": self.name, "impute": self.impute, "standardize": self.standardize}
        arrays = {
            "mean": self._mean,
            "scale": self._scale,
            "observed": self._observed,
            "missing": self._missing,
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
