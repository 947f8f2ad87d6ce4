"""Writing a table of any size: CSV, TSV or Parquet, some rows at a time, whole or not at all."""

from __future__ import annotations

import csv
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.errors import DataError
from hierlearn.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Columns = Mapping[str, Sequence[Any]]

ENDINGS = (".csv", ".tsv", ".parquet")
ROWS = 1 << 16  # rows of a row group


def check_ending(path: Path) -> None:
    """Refuse a file that could not be written for its ending."""
    if path.suffix.lower() not in ENDINGS:
        raise DataError(
            f"{path}: cannot write the ending {path.suffix!r}; known: {', '.join(ENDINGS)}"
        )


@contextmanager
def table_writer(path: Path | str, names: Sequence[str]) -> Iterator[Callable[[Columns], None]]:
    """Give a function that appends rows, as columns by name; the file appears at the end.

    Args:
        path: the file; its ending tells the format.
        names: the columns, in order.
    """
    path = Path(path)
    check_ending(path)
    if path.suffix.lower() == ".parquet":
        with parquet_writer(path, names) as append:
            yield append
        return
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with atomic_write(path) as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(names)

        def append_rows(columns: Columns) -> None:
            cells = [written(columns[name]) for name in names]
            writer.writerows(zip(*cells, strict=True))

        yield append_rows


@contextmanager
def parquet_writer(path: Path, names: Sequence[str]) -> Iterator[Callable[[Columns], None]]:
    """Write Parquet by row groups; the first rows tell the types."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(
            f"{path}: writing Parquet needs pyarrow; install it with: pip install 'hierlearn[data]'"
        ) from None
    with atomic_write(path, "wb") as file:
        waiting: list[Any] = []
        writer: Any = None

        def write() -> None:
            nonlocal writer
            table = pa.concat_tables(waiting)
            if writer is None:
                writer = pq.ParquetWriter(file, table.schema)
            writer.write_table(table, row_group_size=ROWS)
            waiting.clear()

        def append(columns: Columns) -> None:
            waiting.append(pa.table({name: columns[name] for name in names}))
            if sum(map(len, waiting)) >= ROWS:
                write()

        yield append
        if waiting:
            write()
        if writer is not None:
            writer.close()


def written(cells: Sequence[Any]) -> Sequence[Any]:
    """Return a column as CSV has it: truth values in lower case, six digits of a fraction."""
    if not cells or not isinstance(cells[0], (bool, float)):
        return cells
    if isinstance(cells[0], bool):
        return ["true" if cell else "false" for cell in cells]
    return [f"{cell:.6g}" for cell in cells]
