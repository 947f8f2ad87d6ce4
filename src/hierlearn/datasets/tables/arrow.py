"""Files of pyarrow: Parquet, as one file, a folder, a pattern or an address; and Arrow.

Many Parquet files are one table: their row groups follow each other in the order of the files'
names. The line of a row is its number from 1, and that in its own file is what errors show.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.datasets.tables.table import TableChunk, TableFile, TablePart
from hierlearn.errors import DataError, HierlearnError, place
from hierlearn.files import refuse_duplicates
from hierlearn.files.locations import RemotePath, find_files, reason_of, refuse
from hierlearn.files.reading import (
    DAMAGE,
    THREADS,
    allowed,
    check_regular,
    needed,
    read_ahead,
    room_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.files.locations import Location


BUFFER = 1 << 20  # bytes of a column that are read ahead, instead of its entire row group
AHEAD = 1 << 28  # bytes of row groups of a store that are read ahead
ENDING = ".parquet"
POINTER = 8  # bytes of any value in memory, at least
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}  # bytes


class ArrowChunk(TableChunk):
    """Rows whose columns are Arrow arrays; numbers need no detour over Python objects."""

    @classmethod
    def of(cls, path: Location, table: Any, lines: Sequence[int]) -> Self:
        """Return the rows of an Arrow table or record batch."""
        return cls(path, {name: table.column(name) for name in table.column_names}, lines)

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

    def distinct(self, name: str) -> tuple[list[Any], NDArray[np.int64]]:
        """Return the distinct cells of a column as they first occur, and which each row has."""
        from pyarrow import types

        column = self.columns[name]
        kind = column.type
        if not (types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)):
            return super().distinct(name)
        found = column.dictionary_encode(null_encoding="encode")
        found = found.combine_chunks() if hasattr(found, "chunks") else found
        try:
            values: list[Any] = found.dictionary.to_pylist()
        except ValueError:  # not UTF-8
            raise self._unreadable(name) from None
        return values, found.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    def declared_kind(self, name: str) -> str | None:
        """Return "category" for a column that stores its values in a dictionary."""
        from pyarrow import types

        return "category" if types.is_dictionary(self.columns[name].type) else None

    def floats(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return (n,) numbers of one column, and which are missing."""
        from pyarrow import types

        column = self.columns[name]
        if not (types.is_floating(column.type) or types.is_integer(column.type)):
            return super().floats(name)  # texts, decimals
        values = np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
        if not column.null_count:
            return values, np.zeros(len(values), dtype=bool)
        return values, column.is_null().to_numpy(zero_copy_only=False)

    def texts(self, name: str) -> list[str]:
        """Return n texts, empty where one is missing; a column of anything else is refused."""
        texts = self.cells(name)
        for row, cell in enumerate(texts):
            if cell is not None and not isinstance(cell, str):
                raise self._no_text(row, name)
        return [cell or "" for cell in texts]


class ParquetFile(TableFile):
    """A table in one or many Parquet files; its groups are their row groups.

    Args:
        path: a file, a folder of files, a pattern such as ``rows/*.parquet``, or an address of
            these.

    Attributes:
        files: the files, in the order of their rows.
        group_offsets: (G + 1,) the number of the first row of each group, and the number of rows.
        group_bytes: the size of each group in the file, by which a file is told from another.
        file_offsets: (F + 1,) the number of the first row of each file, and the number of rows.

    Raises:
        DataError: naming the file and the column where the schemas of two files differ.
    """

    format_name: ClassVar[str] = "Parquet"
    num_rows: int

    def __init__(self, path: Location) -> None:
        self.path = path
        self.files = find_files(path, ENDING)

        def footer(path: Location) -> tuple[Any, Any]:
            with opened_parquet(path) as file:
                return file.metadata, file.schema_arrow

        footers = list(read_ahead(footer, self.files, THREADS))
        self._metadata = [metadata for metadata, _ in footers]
        check_schemas(self.files, [schema for _, schema in footers])
        self.columns = tuple(footers[0][1].names)
        refuse_duplicates(self.columns, str(path))
        self._groups = [
            (file, number)
            for file, metadata in enumerate(self._metadata)
            for number in range(metadata.num_row_groups)
        ]
        groups = [self._metadata[file].row_group(number) for file, number in self._groups]
        self.group_bytes = [group.total_byte_size for group in groups]
        self.group_offsets = np.cumsum([0, *(group.num_rows for group in groups)])
        self.file_offsets = np.cumsum([0, *(one.num_rows for one in self._metadata)])
        self.num_rows = int(self.group_offsets[-1])
        names = [one.name for one in self.files]
        self._names = names if len({*names}) == len(names) else [str(one) for one in self.files]

    def chunks(
        self, columns: Sequence[str], rows_per_chunk: int | None = None
    ) -> Iterator[TableChunk]:
        """Yield the rows in order."""
        begin = self.within.before
        for table in self._tables(list(columns), rows_per_chunk):
            if table.num_rows:
                yield self._chunk(table, begin)
                begin += table.num_rows

    def parts(self, rows: int) -> list[TablePart]:
        """Return the table as parts of so many rows each, but for the last one."""
        if len(self.files) > 1:
            return super().parts(rows)
        count = self.num_rows
        return [TablePart(begin, min(rows, count - begin)) for begin in range(0, count, rows)]

    def _tables(self, columns: list[str], rows_per_chunk: int | None) -> Iterator[Any]:
        """Yield the rows as Arrow tables or batches."""
        if self.within.rows is not None:  # a part of one file, out of the row groups that hold it
            begin, rows = self.within.before, self.within.rows
            first = int(np.searchsorted(self.group_offsets, begin, side="right")) - 1
            end = int(np.searchsorted(self.group_offsets, begin + rows))
            size = rows_per_chunk or rows
            with opened_parquet(self.files[0], self._metadata[0]) as file:
                batches = file.iter_batches(
                    size, row_groups=range(first, end), columns=columns, use_threads=False
                )
                yield from resliced(batches, begin - int(self.group_offsets[first]), rows, size)
        elif rows_per_chunk is None:
            from pyarrow import concat_tables

            self._check_size(columns)

            def read(number: int) -> Any:
                with opened_parquet(self.files[number], self._metadata[number]) as file:
                    return file.read(columns=columns).select(columns)

            tables = read_ahead(read, range(len(self.files)), THREADS)
            yield concat_tables(tables, promote_options="default")
        elif any(isinstance(path, RemotePath) for path in self.files):
            # As many row groups are read ahead as fit into memory, as columns go.
            largest = max(self.group_bytes, default=0) * len(columns) // len(self.columns)
            ahead = max(1, min(THREADS, AHEAD // max(1, largest)))
            groups = range(len(self._groups))
            for table in read_ahead(lambda one: self._read_group(one, columns), groups, ahead):
                for begin in range(0, table.num_rows, rows_per_chunk):
                    yield table.slice(begin, rows_per_chunk)
        else:
            for number, path in enumerate(self.files):
                with opened_parquet(path, self._metadata[number]) as file:
                    yield from file.iter_batches(rows_per_chunk, columns=columns, use_threads=False)

    def _check_size(self, columns: Sequence[str]) -> None:
        """Raise where columns would take far more memory than their files, whose footers say so."""
        wanted = frozenset(columns)
        for path, metadata in zip(self.files, self._metadata, strict=True):
            # Of each column: how many values, the bytes of its numbers or of the places of its
            # texts in memory, and those of its texts, where each that repeats is stored once.
            rows, values, texts = Counter[str](), Counter[str](), Counter[str]()
            packed = 0
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            for chunk in (group.column(n) for group in groups for n in range(metadata.num_columns)):
                name = chunk.path_in_schema
                name = name if name in wanted else name.split(".")[0]  # of nested types the top
                if name in wanted:
                    rows[name] += chunk.num_values
                    values[name] += chunk.num_values * WIDTHS.get(chunk.physical_type, 4)
                    if chunk.physical_type.endswith("BYTE_ARRAY"):
                        texts[name] += chunk.total_uncompressed_size
                    packed += chunk.total_compressed_size
            room, claimed = room_of(packed), dict(values + texts)
            if sum(claimed.values()) <= room and not isinstance(path, RemotePath):
                # A text that repeats is counted as often as it does only where that could be much.
                several = sorted(name for name in texts if texts[name] * rows[name] > room)
                claimed |= texts_in_memory(path, metadata, several) if several else {}
            if sum(claimed.values()) > room:
                name = max(claimed, key=lambda one: claimed[one])
                raise DataError(
                    f"{path}: column {name!r} takes {claimed[name] / 1e9:,.1f} GB in memory, and "
                    f"all {sum(claimed.values()) / 1e9:,.1f} GB, far more than the file; choose "
                    f"fewer columns, or write fewer rows"
                )

    def read_group(self, group: int, columns: Sequence[str]) -> TableChunk:
        """Return the rows of a row group."""
        return self._chunk(self._read_group(group, list(columns)), int(self.group_offsets[group]))

    def place_of(self, group: int) -> tuple[Location, int]:
        file, number = self._groups[group]
        return self.files[file], number

    def _read_group(self, group: int, columns: list[str]) -> Any:
        file, number = self._groups[group]
        with opened_parquet(self.files[file], self._metadata[file]) as opened:
            return opened.read_row_group(number, columns=columns)

    def _chunk(self, table: Any, begin: int) -> TableChunk:
        numbers = range(begin + 1, begin + table.num_rows + 1)
        lines: Sequence[int] = numbers
        if len(self.files) > 1:
            lines = FileLines(numbers, self.file_offsets, self._names)
        return ArrowChunk.of(self.path, table, lines)


class ArrowFile(TableFile):
    """A table in an Arrow file (Feather), or in a file that holds a stream of Arrow.

    Args:
        path: the file.
    """

    format_name: ClassVar[str] = "Arrow"
    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened_arrow(path) as (schema, _):
            self.columns = tuple(schema.names)
        refuse_duplicates(self.columns, str(path))

    def chunks(
        self, columns: Sequence[str], rows_per_chunk: int | None = None
    ) -> Iterator[TableChunk]:
        """Yield the rows in order."""
        from pyarrow import Table

        begin = 1
        with opened_arrow(self.path) as (schema, batches):
            names = list(columns)
            if rows_per_chunk is None:
                whole = Table.from_batches(batches, schema).select(names)
                tables = iter([whole] if whole.num_rows else [])
            else:
                tables = resliced((one.select(names) for one in batches), 0, None, rows_per_chunk)
            for table in tables:
                yield ArrowChunk.of(self.path, table, range(begin, begin + table.num_rows))
                begin += table.num_rows


def texts_in_memory(path: Location, metadata: Any, columns: list[str]) -> dict[str, int]:
    """Return the bytes that texts take in memory, without making them: from their dictionaries."""
    found = dict.fromkeys(columns, 0)
    with opened_parquet(path, metadata, read_dictionary=columns) as file:
        for group in range(metadata.num_row_groups):
            table = file.read_row_group(group, columns=columns)
            for name in {*columns} & {*table.column_names}:
                found[name] += sum(map(bytes_of, table.column(name).chunks))
    return found


def bytes_of(column: Any) -> int:
    """Return the bytes that an array takes once what repeats is written out as often as it does."""
    import pyarrow.compute as pc
    from pyarrow import types

    kind, size = column.type, POINTER * len(column)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return size + bytes_of(column.values)
    if types.is_struct(kind):
        return size + sum(map(bytes_of, column.flatten()))
    if types.is_dictionary(kind):
        values = column.dictionary
        codes = column.indices.drop_null().to_numpy(zero_copy_only=False)
        counts = np.bincount(codes, minlength=len(values))
    elif types.is_run_end_encoded(kind):
        values, counts = column.values, np.diff(column.run_ends.to_numpy(), prepend=0)
    else:
        return max(size, int(column.nbytes))
    if types.is_string(values.type) or types.is_large_string(values.type):
        size += int(counts @ pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False))
    return size


def check_schemas(files: Sequence[Location], schemas: Sequence[Any]) -> None:
    """Raise unless all files have the same columns with the same types."""
    first, *others = ({field.name: field.type for field in schema} for schema in schemas)
    remedy = "write all files with one schema"
    for path, kinds in zip(files[1:], others, strict=True):
        for name in dict.fromkeys((*first, *kinds)):
            if name not in kinds:
                raise DataError(f"{path} lacks the column {name!r} of {files[0]}; {remedy}")
            if name not in first:
                raise DataError(f"{path} has the column {name!r}, but {files[0]} not; {remedy}")
            if kinds[name] != first[name]:
                own, kind = kinds[name], first[name]
                raise DataError(
                    f"{path}: column {name!r} holds {own}, but {kind} in {files[0]}; {remedy}"
                )


@contextmanager
def opened_parquet(path: Location, metadata: Any = None, **options: Any) -> Iterator[Any]:
    """Open a Parquet file for reading; failures become errors that name the file.

    Args:
        path: the file.
        metadata: of the file, where it was read already.
        options: what pyarrow's ``ParquetFile`` takes.
    """
    with needed(path, "reading Parquet", "pyarrow"):
        import pyarrow.parquet as pq
        from pyarrow import ArrowException
    remote = isinstance(path, RemotePath)
    source: Any = path.open() if isinstance(path, RemotePath) else check_regular(path)
    try:
        # With pre_buffer, the columns of a row group are few requests instead of many, but what was
        # read stays in memory until the file is closed: for row groups of a store only.
        with pq.ParquetFile(
            source,
            metadata=metadata,
            buffer_size=0 if remote else BUFFER,
            pre_buffer=remote,
            **options,
        ) as file:
            yield file
    except HierlearnError:
        raise
    except (ArrowException, OSError, *DAMAGE) as error:
        if isinstance(path, RemotePath) and not isinstance(error, ArrowException):
            refuse(path, error)
        reason = reason_of(error)
        raise DataError(f"{path} is not a Parquet file that can be read: {reason}") from error
    finally:
        if remote:
            source.close()


@contextmanager
def opened_arrow(path: Path) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Open an Arrow file or stream; yield its schema and its record batches, which are checked."""
    with needed(path, "reading Arrow", "pyarrow"):
        import pyarrow as pa
        from pyarrow import ipc
    try:
        with pa.OSFile(str(check_regular(path))) as source:
            size = source.size()
            try:
                reader = ipc.open_file(source)
                batches = map(reader.get_batch, range(reader.num_record_batches))
            except pa.ArrowInvalid:
                source.seek(0)
                reader = ipc.open_stream(source)
                batches = iter(reader)
            yield reader.schema, checked_batches(path, batches, size)
    except HierlearnError:
        raise
    except (pa.ArrowException, OSError, *DAMAGE) as error:
        reason = reason_of(error)
        raise DataError(f"{path} is not an Arrow file that can be read: {reason}") from error


def checked_batches(path: Path, batches: Iterable[Any], size: int) -> Iterator[Any]:
    """Yield record batches whose offsets and texts are valid, until they have too many bytes.

    Args:
        path: the file.
        batches: those in it.
        size: the bytes of the file.
    """
    stored = written_out = 0
    for batch in batches:
        batch.validate(full=True)
        stored += batch.nbytes
        written_out += sum(map(bytes_of, batch.columns))
        if stored > allowed(size) or written_out > room_of(size):
            raise DataError(f"{path} has far more bytes once decompressed; is it the right file?")
        yield batch


def resliced(batches: Iterable[Any], skip: int, rows: int | None, size: int) -> Iterator[Any]:
    """Yield some of the rows of record batches as Arrow tables of one size, but for the last one.

    Args:
        batches: the rows.
        skip: how many to leave out first.
        rows: how many to yield then; None for all.
        size: of a table.
    """
    import pyarrow as pa

    waiting: list[Any] = []
    rows = sys.maxsize if rows is None else rows
    for batch in batches:
        table = pa.Table.from_batches([batch.slice(skip)]).slice(0, rows)
        skip = max(0, skip - batch.num_rows)
        rows -= table.num_rows
        waiting.append(table)
        held = pa.concat_tables(waiting)
        while held.num_rows >= size:
            yield held.slice(0, size)
            held = held.slice(size)
        waiting = [held]
        if not rows:
            break
    if waiting and waiting[0].num_rows:
        yield waiting[0]


# ---------------------------------------- lines of several files


class FileLine(int):
    """The number of a row in the table, shown as its line in its own file: ``3 of b.parquet``."""

    shown: str

    def __str__(self) -> str:
        return self.shown

    def __format__(self, spec: str) -> str:
        return format(self.shown, spec)


class FileLines(Sequence[Any]):
    """The lines of consecutive rows.

    Args:
        numbers: of the rows in the table, from 1.
        offsets: (F + 1,) the number of the first row of each file, from 0.
        names: of the files.
    """

    def __init__(self, numbers: range, offsets: NDArray[np.int64], names: Sequence[str]) -> None:
        self.numbers, self.offsets, self.names = numbers, offsets, names

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return FileLines(self.numbers[row], self.offsets, self.names)
        found = FileLine(self.numbers[row])
        file = int(np.searchsorted(self.offsets, found - 1, side="right")) - 1
        found.shown = f"{found - int(self.offsets[file])} of {self.names[file]}"
        return found
