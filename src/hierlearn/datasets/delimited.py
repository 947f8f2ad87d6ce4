"""CSV and TSV files, read row by row."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from hierlearn.datasets.table_file import TableChunk, TableFile
from hierlearn.files import stream_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class DelimitedFile(TableFile):
    """A CSV file, or TSV by its ending, in UTF-8; cells are stripped texts.

    A row of empty cells is a row, a blank line is not.
    """

    format_name: ClassVar[str] = "CSV or TSV"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = tuple(stream_rows(path)[0])

    def chunks(
        self, columns: Sequence[str], rows_per_chunk: int | None = None
    ) -> Iterator[TableChunk]:
        """Yield the rows in order."""
        header, rows = stream_rows(self.path)
        positions = {name: header.index(name) for name in columns}
        while part := list(islice(rows, rows_per_chunk)):
            cells = {
                name: [row[position].strip() for _, row in part]
                for name, position in positions.items()
            }
            yield TableChunk(self.path, cells, [line for line, _ in part])
