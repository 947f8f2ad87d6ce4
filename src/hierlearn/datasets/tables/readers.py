"""READERS: the formats of tables by the ending of the file; a folder of Parquet files is one.

A table can be divided into parts, consecutive rows that another process reads alone, with the same
line numbers in errors. A Parquet file knows its rows; a CSV file is read through once to find where
rows begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from hierlearn.datasets.tables.arrow import ENDING as PARQUET
from hierlearn.datasets.tables.arrow import (
    ArrowChunk,
    ArrowFile,
    ParquetFile,
    opened_parquet,
    resliced,
)
from hierlearn.datasets.tables.cell_files import ExcelFile, JsonLinesFile, SqliteFile
from hierlearn.datasets.tables.delimited import DelimitedFile, has_arrow
from hierlearn.datasets.tables.table import PartitionedTableFile, TableChunk, TableFile
from hierlearn.errors import DataError, arg
from hierlearn.files.locations import (
    Location,
    RemotePath,
    as_location,
    file_and_part,
    tables_in,
)
from hierlearn.files.reading import is_compressed, is_folder, plain_ending
from hierlearn.files.standard import STANDARD, is_standard, standard_input

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


READERS: dict[str, type[TableFile]] = {
    ".csv": DelimitedFile,
    ".tsv": DelimitedFile,
    ".txt": DelimitedFile,
    PARQUET: ParquetFile,
    ".jsonl": JsonLinesFile,
    ".ndjson": JsonLinesFile,
    ".xlsx": ExcelFile,
    ".feather": ArrowFile,
    ".arrow": ArrowFile,
    ".db": SqliteFile,
    ".sqlite": SqliteFile,
    ".sqlite3": SqliteFile,
}
TEXTS = (DelimitedFile, JsonLinesFile)  # formats that may be compressed
PART_BLOCK = 1 << 24  # bytes of a CSV file that are looked through at a time


def table_ending(source: Location | str) -> str | None:
    """Return the ending that tells the format of a source; None where it is no table.

    A folder with Parquet files directly in it is a table, and so is an address without an ending
    that is known, and ``-``, standard input.
    """
    if is_standard(source):
        return STANDARD
    path = as_location(source)
    if isinstance(path, RemotePath):
        return path.suffix.lower() if path.suffix.lower() in READERS else PARQUET
    ending = plain_ending(file_and_part(path)[0])
    if ending in READERS and (issubclass(READERS[ending], TEXTS) or not is_compressed(path)):
        return ending
    return PARQUET if is_folder(path) and holds_tables(path) else None


def known_endings() -> str:
    """Name the endings of tables, for errors."""
    return f"{', '.join(READERS)}; .csv.gz, .jsonl.gz, also .bz2 and .xz"


def holds_tables(folder: Path) -> bool:
    """Whether there are Parquet files directly in a folder."""
    return any(tables_in((one.name for one in folder.iterdir()), PARQUET))


def open_table(path: Location | str, delimiter: str | None = None) -> TableFile:
    """Open a table by its ending; only the header is read.

    Args:
        path: the file, or ``-`` for standard input. Parquet also takes a folder, a pattern such as
            ``rows/*.parquet``, and an address that fsspec opens, such as ``s3://bucket/rows``;
            Excel and SQLite the name of a sheet or table, ``rows.xlsx::March``.
        delimiter: what separates the cells of a CSV or TSV file; by default found.

    Raises:
        DataError: naming the known endings, or what is wrong with the file.
    """
    path = standard_input() if is_standard(path) else as_location(path)
    ending = table_ending(path)
    if ending is None:
        raise DataError(f"{path}: cannot read the ending {path.suffix!r}; known: {known_endings()}")
    reader = READERS[ending]
    if isinstance(path, RemotePath) and not issubclass(reader, ParquetFile):
        raise DataError(
            f"{path}: only Parquet files are read from an address; convert the file, or copy it "
            f"to this machine"
        )
    made: Any = reader
    if delimiter is None:
        return cast("TableFile", made(path))
    if not reader.takes_delimiter:
        raise DataError(
            f"{path}: {arg('delimiter=')} goes with CSV and TSV files, not {reader.format_name}; "
            "leave it "
            f"out"
        )
    return cast("TableFile", made(path, delimiter))


def open_partitioned(path: Location | str) -> PartitionedTableFile:
    """Open a table whose rows can be read in any order, for training that streams them."""
    file = open_table(path)
    if not isinstance(file, PartitionedTableFile):
        names = [
            one.format_name for one in READERS.values() if issubclass(one, PartitionedTableFile)
        ]
        raise DataError(
            f"{path}: only {' or '.join(dict.fromkeys(names))} files can be streamed into "
            f"training; convert the file, or train without streaming"
        )
    return file


# ---------------------------------------- parts of a table


class Span(NamedTuple):
    """Some bytes of a CSV file, from the beginning of a row to the end of another.

    Attributes:
        begin: the first byte.
        end: the byte after the last one; None for the end of the file.
        lines: how many lines come before.
    """

    begin: int = 0
    end: int | None = None
    lines: int = 0


class TablePart(NamedTuple):
    """Some consecutive rows of a table.

    Attributes:
        before: how many rows come before.
        rows: how many there are; None for all that follow, where only reading would tell.
        span: where they are in a CSV file; None in other formats.
    """

    before: int
    rows: int | None
    span: Span | None = None


WHOLE = TablePart(0, None, Span())


def parts_of(file: TableFile, rows: int) -> list[TablePart]:
    """Return a table as parts of so many rows each, but for the last one; none without rows.

    Of a CSV file that only Python's csv module can read from some row on, what follows that row is
    one part; so are all rows of a compressed file, and of other formats.

    Args:
        file: the table.
        rows: of a part.
    """
    if isinstance(file, DelimitedFile):
        return delimited_parts(file, rows)
    if not isinstance(file, ParquetFile):
        return [WHOLE]
    count = file.num_rows
    return [TablePart(begin, min(rows, count - begin)) for begin in range(0, count, rows)]


def delimited_parts(file: DelimitedFile, rows: int) -> list[TablePart]:
    """Return the parts of a CSV file."""
    if len(file.columns) == 1 or is_compressed(file.path) or not has_arrow():
        return [WHOLE]
    from hierlearn.datasets.tables.delimited import blocks, parse_block

    parts: list[TablePart] = []
    begin = line = 0  # of the part that is being measured
    before = count = 0  # the rows of the parts that are, and of this one
    offset = lines = 0  # what has been looked through
    for block in blocks(file, PART_BLOCK):
        parsed = (
            None
            if block is None
            else parse_block(file, file.columns[:1], block, is_first=not offset)
        )
        if block is None or parsed is None:
            return [*parts, TablePart(before, None, Span(begin, None, line))]
        ends, taken = parsed[1], 0
        starts = line_starts(block)
        while count + len(ends) - taken >= rows:
            taken += rows - count
            end = ends[taken - 1]  # the line at which the part ends, in this block
            parts.append(TablePart(before, rows, Span(begin, offset + int(starts[end]), line)))
            begin, line = offset + int(starts[end]), lines + end
            before, count = before + rows, 0
        count += len(ends) - taken
        offset += len(block)
        lines += len(starts) - 1 - (not block.endswith(b"\n"))
    return [*parts, TablePart(before, count, Span(begin, None, line))] if count else parts


def line_starts(block: bytes) -> NDArray[np.int64]:
    """Return where each line of a block begins, and the end of the block."""
    feeds = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
    ends = [] if block.endswith(b"\n") else [len(block)]
    return np.concatenate([[0], feeds + 1, ends]).astype(np.int64)


class PartFile(TableFile):
    """A part of a table, as a table.

    Args:
        file: the entire table.
        part: which of its rows.
    """

    def __init__(self, file: TableFile, part: TablePart) -> None:
        self.file, self.part = file, part
        self.path, self.columns, self.num_rows = file.path, file.columns, part.rows

    def chunks(
        self, columns: Sequence[str], rows_per_chunk: int | None = None
    ) -> Iterator[TableChunk]:
        """Yield the rows in order."""
        if isinstance(self.file, ParquetFile):
            yield from self._groups(self.file, columns, rows_per_chunk)
        elif self.part == WHOLE:
            yield from self.file.chunks(columns, rows_per_chunk)
        else:
            yield from self._span(columns, rows_per_chunk)

    def _span(self, columns: Sequence[str], rows_per_chunk: int | None) -> Iterator[TableChunk]:
        """Yield the rows of a part of a CSV file."""
        from hierlearn.datasets.tables.delimited import arrow_chunks, as_chunk

        assert isinstance(self.file, DelimitedFile)
        left = self.part.rows
        for chunk in arrow_chunks(self.file, columns, rows_per_chunk, self.part.span):
            if left is None:
                yield chunk
                continue
            if len(chunk) > left:  # the csv module reads to the end of the file
                import pyarrow as pa

                table = pa.table({name: chunk.columns[name] for name in columns})
                chunk = as_chunk(self.file, table.slice(0, left), chunk.lines[:left])
            yield chunk
            left -= len(chunk)
            if not left:
                return

    def _groups(
        self, file: ParquetFile, columns: Sequence[str], rows_per_chunk: int | None
    ) -> Iterator[TableChunk]:
        """Yield the rows of a part of a Parquet file, out of the row groups that hold them."""
        begin, rows = self.part.before, self.part.rows or 0
        offsets = file.group_offsets
        first = int(np.searchsorted(offsets, begin, side="right")) - 1
        end = int(np.searchsorted(offsets, begin + rows, side="left"))
        size = rows_per_chunk or rows
        with opened_parquet(file.path) as opened:
            batches = opened.iter_batches(
                size, row_groups=range(first, end), columns=list(columns), use_threads=False
            )
            for table in resliced(batches, begin - int(offsets[first]), rows, size):
                lines = range(begin + 1, begin + table.num_rows + 1)
                yield ArrowChunk(file.path, {name: table.column(name) for name in columns}, lines)
                begin += table.num_rows
