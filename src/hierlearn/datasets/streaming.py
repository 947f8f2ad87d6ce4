"""The rows of a table as they come: CSV, TSV or Parquet of any size, some rows at a time.

For predicting, so no labels: only the columns that a model reads are turned into numbers or texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.columns import numeric_column
from hierlearn.datasets.parquet import REMEDY, arrow_numbers, arrow_texts, opened_parquet
from hierlearn.errors import DataError, quoted, unknown_name
from hierlearn.files import stream_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

CELLS = 1 << 18  # cells of a file that are held at a time


@dataclass(frozen=True)
class Chunk:
    """Some rows that follow each other.

    Attributes:
        inputs: (n, D) float32 with NaN where a value is missing, or n texts.
        lines: the line of each row in the file, or its number from 1 in Parquet.
    """

    inputs: NDArray[np.float32] | list[str]
    lines: Sequence[int]


class TableStream:
    """A table that is read as often as it is iterated over, a chunk at a time.

    Args:
        path: the file; its ending tells the format.
        features: the feature columns, in the order in which the model reads them, or
        text: the column of texts.
        cells: how many cells a chunk may hold.

    Attributes:
        ignored: the columns that are not read.
        rows: how many rows there are, where the file tells without being read.

    Raises:
        DataError: naming the columns that are missing.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        features: Sequence[str] = (),
        text: str | None = None,
        cells: int = CELLS,
    ) -> None:
        if bool(features) == (text is not None):
            raise DataError("name either feature columns (features=) or a text column (text=)")
        self.path = Path(path)
        self.text = text
        self.names = (text,) if text is not None else tuple(features)
        self.size = max(1, cells // len(self.names))
        self.rows: int | None = None
        ending = self.path.suffix.lower()
        if ending not in STREAMS:
            raise DataError(
                f"{self.path}: cannot read the ending {self.path.suffix!r}; "
                f"known: {', '.join(STREAMS)}"
            )
        self._parts = STREAMS[ending]
        header = self._header()
        self._check(header)
        self.ignored = tuple(name for name in header if name not in self.names)

    def _header(self) -> list[str]:
        if self.path.suffix.lower() != ".parquet":
            return stream_rows(self.path)[0]
        with opened_parquet(self.path) as file:
            self.rows = file.metadata.num_rows
            names: list[str] = file.schema_arrow.names
        return names

    def _check(self, header: Sequence[str]) -> None:
        missing = [name for name in self.names if name not in header]
        if len(missing) == 1:
            raise DataError(f"{self.path}: {unknown_name('column', missing[0], header)}")
        if missing:
            raise DataError(
                f"{self.path} lacks {len(missing)} of the {len(self.names)} columns: "
                f"{quoted(missing, most=10)}; it has {quoted(header, most=10)}"
            )

    def __iter__(self) -> Iterator[Chunk]:
        found = False
        for chunk in self._parts(self):
            found = True
            yield chunk
        if not found:
            raise DataError(f"{self.path} has a header but no rows")


def delimited_chunks(stream: TableStream) -> Iterator[Chunk]:
    """Yield the chunks of a CSV or TSV file."""
    header, rows = stream_rows(stream.path)
    places = [header.index(name) for name in stream.names]
    while part := list(islice(rows, stream.size)):
        lines = [line for line, _ in part]
        columns = [[row[place] for _, row in part] for place in places]
        inputs: Any = columns[0]
        if stream.text is None:
            inputs = np.stack(
                [
                    numeric_column(
                        cells,
                        path=stream.path,
                        lines=lines,
                        column=name,
                        missing="",
                        remedy=REMEDY,
                    )
                    for name, cells in zip(stream.names, columns, strict=True)
                ],
                axis=1,
            )
        yield Chunk(inputs, lines)


def parquet_chunks(stream: TableStream) -> Iterator[Chunk]:
    """Yield the chunks of a Parquet file."""
    begin = 1
    with opened_parquet(stream.path) as file:
        columns = list(stream.names)
        for batch in file.iter_batches(stream.size, columns=columns, use_threads=False):
            if not batch.num_rows:
                continue
            lines = range(begin, begin + batch.num_rows)
            begin += batch.num_rows
            cells = [batch.column(name) for name in stream.names]
            inputs: Any = (
                arrow_numbers(cells, stream.names, path=stream.path, lines=lines)
                if stream.text is None
                else arrow_texts(cells[0], stream.text, path=stream.path, lines=lines)
            )
            yield Chunk(inputs, lines)


STREAMS: dict[str, Callable[[TableStream], Iterator[Chunk]]] = {
    ".csv": delimited_chunks,
    ".tsv": delimited_chunks,
    ".parquet": parquet_chunks,
}
