"""Rows of numbers: how they are checked, taken in chunks, and searched for missing values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError
from hierlearn.features.moments import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray


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


def newly_missing(inputs: ArrayLike, missing: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Return the rows of NaN, for each column that has any and had none in training.

    Args:
        inputs: (N, D) rows; those of another width give none.
        missing: (D,) how many training values of each column were missing.
    """
    values = np.asarray(inputs)
    complete = missing == 0  # (D,)
    if values.dtype.kind != "f" or values.shape[1:] != complete.shape:
        return {}
    wrong = np.isnan(values) & complete
    columns = np.flatnonzero(wrong.any(axis=0)).tolist()
    return {column: np.flatnonzero(wrong[:, column]) for column in columns}
