"""CSV and TSV files: through pyarrow where it is installed, else row by row, to the same result."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from hierlearn.datasets.table_file import TableChunk, TableFile
from hierlearn.files import Start, announced_delimiter, stream_rows
from hierlearn.files.delimiters import check_delimiter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class DelimitedFile(TableFile):
    """A CSV or TSV file in UTF-8; cells are stripped texts.

    A row of empty cells is a row. A blank line is none, except in a file of one column, where it
    is an empty cell if a row follows.

    Args:
        path: the file.
        delimiter: what separates cells; by default found in the first rows.
    """

    format_name: ClassVar[str] = "CSV or TSV"
    takes_delimiter: ClassVar[bool] = True
    path: Path

    def __init__(self, path: Path, delimiter: str | None = None) -> None:
        self.path = path
        remedy = "; set delimiter= if that is wrong"
        self.delimiter = (
            announced_delimiter(path, remedy) if delimiter is None else check_delimiter(delimiter)
        )
        self.columns = tuple(stream_rows(path, self.delimiter)[0])

    def chunks(
        self, columns: Sequence[str], rows_per_chunk: int | None = None
    ) -> Iterator[TableChunk]:
        """Yield the rows in order."""
        if len(self.columns) > 1 and has_arrow():
            from hierlearn.datasets.arrow_csv import arrow_chunks

            yield from arrow_chunks(self, columns, rows_per_chunk)
        else:
            yield from self.parsed_chunks(columns, rows_per_chunk)

    def parsed_chunks(
        self,
        columns: Sequence[str],
        rows_per_chunk: int | None = None,
        start: Start | None = None,
    ) -> Iterator[TableChunk]:
        """Yield the rows in order, parsed by Python.

        Args:
            columns: the columns to read.
            rows_per_chunk: the most rows of a chunk; None for all rows in one.
            start: where to begin, if not at the first row.
        """
        header, rows = stream_rows(self.path, self.delimiter, start or Start())
        places = {name: position for position, name in enumerate(header)}
        positions = {name: places[name] for name in columns}
        while part := list(islice(rows, rows_per_chunk)):
            cells = {
                name: [row[position].strip() for _, row in part]
                for name, position in positions.items()
            }
            yield TableChunk(self.path, cells, [line for line, _ in part])


def has_arrow() -> bool:
    """Whether pyarrow can read CSV files."""
    try:
        import pyarrow.csv  # noqa: F401
    except ImportError:
        return False
    return True
