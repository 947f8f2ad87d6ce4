"""TableStream: the inputs of a table of any size, some rows at a time.

For predicting, so without labels: only the columns that a model reads become numbers or texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.annotations import row_ids
from hierlearn.datasets.readers import open_table
from hierlearn.datasets.table_parts import PartFile, parts_of
from hierlearn.datasets.vectors import Vectors
from hierlearn.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from hierlearn.datasets.images import Images
    from hierlearn.datasets.table import Table
    from hierlearn.datasets.table_file import TableChunk
    from hierlearn.datasets.table_parts import TablePart

CELLS = 1 << 18  # cells of a file that are held at a time
EVEN = 4096  # rows of which a chunk has a multiple, or it has a power of 2


@dataclass(frozen=True)
class Chunk:
    """Some consecutive rows.

    Attributes:
        inputs: (n, D) float32 with NaN where a value is missing, or n texts, or a ``Table``,
            or ``Images``.
        lines: the line of each row in the file, or its number from 1 in Parquet.
        ids: the id of each row; None where no column has them.
        kept: columns of the file as they are, lists or Arrow arrays, by name.
    """

    inputs: NDArray[np.float32] | list[str] | Table | Images
    lines: Sequence[int]
    ids: Sequence[str] | None = None
    kept: Mapping[str, Any] = field(default_factory=dict)

    def take(self, rows: slice) -> Chunk:
        """Return some consecutive ones of the rows."""
        ids = None if self.ids is None else self.ids[rows]
        kept = {name: cells[rows] for name, cells in self.kept.items()}
        return Chunk(self.inputs[rows], self.lines[rows], ids, kept)


class TableStream:
    """A table that can be iterated over again and again, one chunk at a time.

    Args:
        path: the file; its ending tells the format. Parquet may be many files, see ``open_table``.
        features: the feature columns, in the order in which the model reads them, those of a mixed
            table with their kinds; or
        text: the column of texts.
        id_column: a column that names each row.
        keep: columns that every chunk has as they are.
        delimiter: what separates the cells of a CSV or TSV file; by default found.
        cells: how many cells a chunk may hold.
        embeddings: instead of columns, the vectors of the rows: a file, or a column of lists.

    Attributes:
        ignored: the columns that are not read.
        rows: how many rows there are, None where only reading would tell.
        before: how many rows of the file come before them.

    Raises:
        DataError: naming the columns that the file lacks.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        features: Sequence[str] | Mapping[str, str] = (),
        text: str | None = None,
        id_column: str | None = None,
        keep: Sequence[str] = (),
        delimiter: str | None = None,
        cells: int = CELLS,
        embeddings: Path | str | None = None,
    ) -> None:
        if embeddings is None and bool(features) == (text is not None):
            raise DataError("name either feature columns (features=) or a text column (text=)")
        self.text = text
        self.kinds = dict(features) if isinstance(features, Mapping) else None
        self.id_column = id_column
        self.names = (text,) if text is not None else tuple(features)
        self.keep = tuple(keep)
        self.size = even_size(cells // max(1, len(self.names) + len(self.keep)))
        self.file = open_table(path, delimiter)
        self.path = self.file.path
        self.before = 0
        self.rows = self.file.num_rows
        self._check_columns()
        self.vectors = None if embeddings is None else Vectors(embeddings, self.file)
        own = self.names if self.vectors is None else self.vectors.columns
        ids = () if id_column is None else (id_column,)
        self._read = tuple(dict.fromkeys((*own, *ids, *self.keep))) or self.file.columns[:1]
        self.ignored = tuple(name for name in self.file.columns if name not in self._read)

    def _check_columns(self) -> None:
        """Refuse a file that lacks columns."""
        self.file.check_inputs(self.names)
        self.file.check_columns(self.keep)
        if self.id_column is not None:
            self.file.check_columns([self.id_column])
            if self.id_column in self.names:
                raise DataError(
                    f"column {self.id_column!r} is named twice, as an input and as id_column; give "
                    f"each column one role"
                )

    def _inputs(self, rows: TableChunk) -> NDArray[np.float32] | list[str] | Table:
        """Return the inputs of some rows."""
        if self.vectors is not None:
            return self.vectors.next(rows)
        if self.text is not None:
            return rows.texts(self.text)
        if self.kinds is not None:
            return rows.table({name: self.kinds[name] for name in self.names})
        return rows.numbers(self.names)

    def parts(self, rows: int) -> list[TablePart]:
        """Return the table as parts of so many rows each, but for the last one."""
        return parts_of(self.file, rows)

    def part(self, part: TablePart) -> TableStream:
        """Return the stream of a part."""
        found = copy(self)
        found.vectors = copy(self.vectors)
        found.file = PartFile(self.file, part)
        found.before, found.rows = part.before, part.rows
        return found

    def __iter__(self) -> Iterator[Chunk]:
        found = False
        if self.vectors is not None:
            self.vectors.restart(self.before)
        for rows in self.file.chunks(self._read, self.size):
            found = True
            inputs = self._inputs(rows)
            ids = None if self.id_column is None else row_ids(rows, self.id_column)
            yield Chunk(inputs, rows.lines, ids, {name: rows.columns[name] for name in self.keep})
        if not found:
            raise self.file.no_rows()
        if self.vectors is not None and (not self.before and self.rows is None):
            self.vectors.check_count(self.vectors.done)


def even_size(rows: int) -> int:
    """Return at most so many rows, at least 1, in which batches of a power of 2 come out even."""
    return rows - rows % EVEN if rows >= EVEN else 1 << (max(1, rows).bit_length() - 1)
