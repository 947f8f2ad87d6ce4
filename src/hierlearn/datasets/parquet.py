"""Parquet files through pyarrow; the line of a row is its number from 1."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.datasets.table_file import PartitionedTableFile, TableChunk
from hierlearn.errors import DataError, HierlearnError, place
from hierlearn.files import refuse_duplicates
from hierlearn.files.reading import DAMAGE, check_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

BUFFER = 1 << 20  # bytes of a column that are read ahead, instead of its entire row group


class ArrowChunk(TableChunk):
    """Rows whose columns are Arrow arrays; numbers need no detour over Python objects."""

    def cells(self, name: str) -> list[Any]:
        """Return the cells of a column as Python values, None where one is missing."""
        try:
            found: list[Any] = self.columns[name].to_pylist()
        except (ValueError, OverflowError, KeyError):
            raise self._unreadable(name) from None
        return found

    def _unreadable(self, name: str) -> DataError:
        """Return the error of the first cell that has no value in Python."""
        for line, cell in zip(self.lines, self.columns[name], strict=True):
            try:
                cell.as_py()
            except UnicodeDecodeError:
                return DataError(f"{place(self.path, line, name)}: the text is not UTF-8")
            except (ValueError, OverflowError, KeyError) as error:
                return DataError(f"{place(self.path, line, name)}: no such value ({error})")
        return DataError(f"{self.path}: column {name!r} cannot be read")

    def declared_kind(self, name: str) -> str | None:
        """Return "category" for a column that stores its values in a dictionary."""
        from pyarrow import types

        return "category" if types.is_dictionary(self.columns[name].type) else None

    def number_column(self, name: str) -> NDArray[np.float32]:
        """Return (n,) float32 of one column, NaN where a value is missing."""
        values = plain_numbers(self.columns[name])
        # Texts, decimals, and values that must be refused with their line.
        return super().number_column(name) if values is None else values


class ParquetFile(PartitionedTableFile):
    """A Parquet file; its groups are the row groups."""

    format_name: ClassVar[str] = "Parquet"

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened_parquet(path) as file:
            metadata = file.metadata
            self.columns = tuple(file.schema_arrow.names)
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            counts = [group.num_rows for group in groups]
            self.group_bytes = [group.total_byte_size for group in groups]
            self.num_rows = metadata.num_rows
        refuse_duplicates(self.columns, str(path))
        self.group_offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def chunks(
        self, columns: Sequence[str], rows_per_chunk: int | None = None
    ) -> Iterator[TableChunk]:
        """Yield the rows in order."""
        begin = 0
        with opened_parquet(self.path) as file:
            parts = (
                [file.read(columns=list(columns))]
                if rows_per_chunk is None
                else file.iter_batches(rows_per_chunk, columns=list(columns), use_threads=False)
            )
            for part in parts:
                if part.num_rows:
                    yield self._chunk(part, columns, begin)
                    begin += part.num_rows

    def read_group(self, group: int, columns: Sequence[str]) -> TableChunk:
        """Return the rows of a row group."""
        with opened_parquet(self.path) as file:
            part = file.read_row_group(group, columns=list(columns))
        return self._chunk(part, columns, int(self.group_offsets[group]))

    def _chunk(self, part: Any, columns: Sequence[str], begin: int) -> TableChunk:
        lines = range(begin + 1, begin + part.num_rows + 1)
        return ArrowChunk(self.path, {name: part.column(name) for name in columns}, lines)


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file for reading; failures become errors that name the file."""
    try:
        import pyarrow.parquet as pq
        from pyarrow import ArrowException
    except ImportError:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow; install it with: pip install pyarrow"
        ) from None
    check_regular(path)
    try:
        # With pre_buffer, whatever was read would stay in memory until the file is closed.
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            yield file
    except HierlearnError:
        raise
    except (ArrowException, OSError, *DAMAGE) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise DataError(f"{path} is not a Parquet file that can be read: {reason}") from error


def plain_numbers(column: Any) -> NDArray[np.float32] | None:
    """Return an Arrow column as float32, None where its values must be parsed one by one."""
    from pyarrow import types

    if not (types.is_floating(column.type) or types.is_integer(column.type)):
        return None
    values = column.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # parsing one by one refuses values beyond float32
        narrow = np.asarray(values, dtype=np.float64).astype(np.float32)
    known = np.count_nonzero(np.isfinite(narrow))
    return narrow if known == len(narrow) - column.null_count else None
