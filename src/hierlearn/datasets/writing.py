"""Writing a table of any size, some rows at a time: CSV, TSV, JSON lines or Parquet.

A file appears complete or not at all; standard output shows rows as they are made. A format is one
context manager, registered under its file ending in ``WRITERS``.
"""

from __future__ import annotations

import gzip
import json
from contextlib import AbstractContextManager, contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.coded_column import CodedColumn
from hierlearn.datasets.delimited_text import DelimitedText
from hierlearn.errors import DataError
from hierlearn.files.compressed import is_compressed, plain_ending
from hierlearn.files.delimiters import delimiter_of
from hierlearn.files.standard import is_standard, standard_output
from hierlearn.files.writing import atomic_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Append = Callable[[Mapping[str, Sequence[Any]]], None]

ROWS = 1 << 16  # rows of a row group, at most
CELLS = 1 << 22  # cells of a row group, at most
TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")  # formats that may be compressed


def written_ending(path: Path) -> str | None:
    """Return the ending that tells the format of a file to write; None where it tells none."""
    if is_standard(path):
        return ".csv"
    ending = plain_ending(path)
    plain = path.suffix.lower() == ending or (path.suffix.lower() == ".gz" and ending in TEXTS)
    return ending if ending in WRITERS and plain else None


def is_delimited(path: Path | str) -> bool:
    """Whether a file to write is CSV or TSV."""
    return written_ending(Path(path)) in (".csv", ".tsv")


def check_ending(path: Path) -> None:
    """Refuse a file whose ending is not that of a known format."""
    if written_ending(path) is None:
        raise DataError(
            f"{path}: cannot write the ending {path.suffix!r}; known: {', '.join(WRITERS)}, and "
            f"{', '.join(f'{one}.gz' for one in TEXTS)}"
        )


def table_writer(path: Path | str, names: Sequence[str]) -> AbstractContextManager[Append]:
    """Return a context that gives a function to append rows, as columns by name.

    The file appears when the context ends without an error.

    Args:
        path: the file; its ending tells the format. ``-`` is CSV on standard output.
        names: the columns, in order.
    """
    path = Path(path)
    check_ending(path)
    return WRITERS[str(written_ending(path))](path, names)


@contextmanager
def text_output(path: Path) -> Iterator[Callable[[str], object]]:
    """Open a file of text; yield what appends to it. It may be compressed, or standard output."""
    if is_standard(path):
        with standard_output() as write:
            yield write
    elif is_compressed(path):
        with atomic_write(path, "wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            yield lambda text: packed.write(text.encode())
    else:
        with atomic_write(path) as file:
            yield file.write


@contextmanager
def delimited_writer(path: Path, names: Sequence[str]) -> Iterator[Append]:
    """Write CSV, or TSV by the ending."""
    with text_output(path) as write:
        text = DelimitedText(names, delimiter_of(path))
        write(text.header())

        def append(columns: Mapping[str, Sequence[Any]]) -> None:
            write(text.rows(columns))

        yield append


@contextmanager
def json_lines_writer(path: Path, names: Sequence[str]) -> Iterator[Append]:
    """Write one JSON object per line, null where a value is missing."""
    with text_output(path) as write:

        def append(columns: Mapping[str, Sequence[Any]]) -> None:
            cells = [plain_cells(columns[name]) for name in names]
            rows = (dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True))
            lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows)
            write("".join(f"{line}\n" for line in lines))

        yield append


def plain_cells(cells: Any) -> list[Any]:
    """Return a column as Python values, None where one is not a number."""
    if isinstance(cells, CodedColumn):
        values = plain_cells(cells.values)
        return [values[code] for code in cells.codes.tolist()]
    for method in ("to_pylist", "tolist"):
        if hasattr(cells, method):
            cells = getattr(cells, method)()
    return [None if isinstance(cell, float) and not isfinite(cell) else cell for cell in cells]


@contextmanager
def parquet_writer(path: Path, names: Sequence[str]) -> Iterator[Append]:
    """Write Parquet by row groups; the first rows determine the types."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(
            f"{path}: writing Parquet needs pyarrow; install it with: pip install pyarrow"
        ) from None
    with atomic_write(path, "wb") as file:
        waiting: list[Any] = []
        writer: Any = None
        most = max(1, min(ROWS, CELLS // len(names)))

        def write() -> None:
            nonlocal writer
            table = pa.concat_tables(waiting)
            if writer is None:
                writer = pq.ParquetWriter(file, table.schema)
            writer.write_table(table, row_group_size=most)
            waiting.clear()

        def append(columns: Mapping[str, Sequence[Any]]) -> None:
            waiting.append(pa.table({name: as_arrow(columns[name]) for name in names}))
            if sum(map(len, waiting)) >= most:
                write()

        yield append
        if waiting:
            write()
        if writer is not None:
            writer.close()


WRITERS: dict[str, Callable[[Path, Sequence[str]], AbstractContextManager[Append]]] = {
    ".csv": delimited_writer,
    ".tsv": delimited_writer,
    ".parquet": parquet_writer,
    ".jsonl": json_lines_writer,
    ".ndjson": json_lines_writer,
}


def as_arrow(cells: Sequence[Any]) -> Any:
    """Return a column as pyarrow takes it."""
    return cells.to_arrow() if isinstance(cells, CodedColumn) else cells
