"""Parquet files through pyarrow: opened with errors that name the file, columns as float32."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.columns import numeric_column
from hierlearn.errors import DataError, HierlearnError, place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

REMEDY = "leave the cell empty if it is missing, or choose the columns with features"
BUFFER = 1 << 20  # bytes read ahead of a column, instead of a whole row group of it


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file for reading; what cannot be read is worded."""
    try:
        import pyarrow.parquet as pq
        from pyarrow import ArrowException
    except ImportError:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow; install it with: pip install 'hierlearn[data]'"
        ) from None
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        # Buffered ahead, what was read of a file would stay in memory until it is closed.
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            yield file
    except HierlearnError:
        raise
    except (ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}") from None


def arrow_numbers(
    columns: Sequence[Any], names: Sequence[str], *, path: Path, lines: Sequence[int]
) -> NDArray[np.float32]:
    """Return (n, D) float32 of Arrow columns; NaN where a value is missing."""
    found = np.empty((len(lines), len(names)), dtype=np.float32)
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        values = plain_numbers(column)
        if values is None:  # texts, decimals, or a value that must be refused with its line
            values = numeric_column(
                column.to_pylist(),
                path=path,
                lines=lines,
                column=name,
                missing="",
                remedy=REMEDY,
            )
        found[:, number] = values
    return found


def plain_numbers(column: Any) -> NDArray[np.float32] | None:
    """Return a column of numbers as float32, None where it needs a closer look."""
    from pyarrow import types

    if not (types.is_floating(column.type) or types.is_integer(column.type)):
        return None
    values = column.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused by the closer look
        narrow = np.asarray(values, dtype=np.float64).astype(np.float32)
    known = np.count_nonzero(np.isfinite(narrow))
    return narrow if known == len(narrow) - column.null_count else None


def arrow_texts(column: Any, name: str, *, path: Path, lines: Sequence[int]) -> list[str]:
    """Return a column of texts; a missing one is an empty text."""
    texts: list[str] = []
    for line, cell in zip(lines, column.to_pylist(), strict=True):
        if cell is not None and not isinstance(cell, str):
            raise DataError(f"{place(path, line, name)}: {cell!r} is not text")
        texts.append(cell or "")
    return texts
