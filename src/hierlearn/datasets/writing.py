"""Writing a table of any size: CSV, TSV or Parquet, some rows at a time, complete or not at all.

A format is one context manager, registered under its file ending in ``WRITERS``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.coded_column import CodedColumn
from hierlearn.datasets.delimited_text import DelimitedText
from hierlearn.errors import DataError
from hierlearn.files.delimiters import delimiter_of
from hierlearn.files.writing import atomic_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Append = Callable[[Mapping[str, Sequence[Any]]], None]

ROWS = 1 << 16  # rows of a row group, at most
CELLS = 1 << 22  # cells of a row group, at most


def check_ending(path: Path) -> None:
    """Refuse a file whose ending is not that of a known format."""
    if path.suffix.lower() not in WRITERS:
        raise DataError(
            f"{path}: cannot write the ending {path.suffix!r}; known: {', '.join(WRITERS)}"
        )


def table_writer(path: Path | str, names: Sequence[str]) -> AbstractContextManager[Append]:
    """Return a context that gives a function to append rows, as columns by name.

    The file appears when the context ends without an error.

    Args:
        path: the file; its ending tells the format.
        names: the columns, in order.
    """
    path = Path(path)
    check_ending(path)
    return WRITERS[path.suffix.lower()](path, names)


@contextmanager
def delimited_writer(path: Path, names: Sequence[str]) -> Iterator[Append]:
    """Write CSV, or TSV by the ending."""
    with atomic_write(path) as file:
        text = DelimitedText(names, delimiter_of(path))
        file.write(text.header())

        def append(columns: Mapping[str, Sequence[Any]]) -> None:
            file.write(text.rows(columns))

        yield append


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
}


def as_arrow(cells: Sequence[Any]) -> Any:
    """Return a column as pyarrow takes it."""
    return cells.to_arrow() if isinstance(cells, CodedColumn) else cells
