"""Writing a table of any size, some rows at a time: CSV, TSV, JSON lines or Parquet.

A file appears complete or not at all; standard output shows rows as they are made. A format is one
context manager, registered under its file ending in ``WRITERS``. CSV is as Python's csv module
writes it, with booleans in lower case and six digits of floats. Of a column that repeats a few
values, each value becomes text once, and neighboring columns with the same codes are one: a row is
then a lookup or two and a float.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import DataError
from hierlearn.files.locations import is_standard, standard_output
from hierlearn.files.reading import is_compressed, needed, plain_ending
from hierlearn.files.rows import delimiter_of
from hierlearn.files.writing import atomic_write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    Append = Callable[[Mapping[str, Sequence[Any]]], object]

ROWS = 1 << 16  # rows of a row group, at most
CELLS = 1 << 22  # cells of a row group, at most
TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")  # formats that may be compressed
EMPTY = '""'  # an empty cell that is alone in its row
MOST_TEXTS = 1024  # groups of columns whose texts are held


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
def text_writer(path: Path, names: Sequence[str]) -> Iterator[Append]:
    """Write CSV, TSV, or one JSON object per line, null where a value is missing."""
    with text_output(path) as write:
        if str(written_ending(path)) in (".csv", ".tsv"):
            text = DelimitedText(names, delimiter_of(path))
            write(text.header())
            yield lambda columns: write(text.rows(columns))
            return

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
    with needed(path, "writing Parquet", "pyarrow"):
        import pyarrow as pa
        import pyarrow.parquet as pq
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
    **dict.fromkeys(TEXTS, text_writer),
    ".parquet": parquet_writer,
}


def as_arrow(cells: Sequence[Any]) -> Any:
    """Return a column as pyarrow takes it."""
    return cells.to_arrow() if isinstance(cells, CodedColumn) else cells


# ---------------------------------------- the text of CSV


class DelimitedText:
    """Makes text of some columns, rows after rows.

    Args:
        names: the columns, in order.
        delimiter: what separates cells.
    """

    def __init__(self, names: Sequence[str], delimiter: str) -> None:
        self.names = names
        self.delimiter = delimiter
        quoted = ""  # whether csv quotes a carriage return depends on Python
        for character in f'{delimiter}"\r\n':
            text = io.StringIO()
            csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow(
                [f"a{character}a", ""]
            )
            quoted += character if text.getvalue().startswith('"') else ""
        self._special = re.compile(f"[{re.escape(quoted)}]")
        # The texts of the values of columns with the same codes, held with what they were made of.
        self._texts: dict[tuple[int, ...], tuple[list[Sequence[Any]], list[str]]] = {}

    def header(self) -> str:
        """Return the names of the columns as a row."""
        return self._lines([self._cells([name]) for name in self.names])

    def rows(self, columns: Mapping[str, Sequence[Any]]) -> str:
        found: list[Sequence[str]] = []
        chosen: list[Any] = [columns[name] for name in self.names]
        # Neighbors with the same codes are one column, whose texts are made once per value.
        same = groupby(chosen, key=lambda one: id(getattr(one, "codes", None)))
        for group in (list(group) for _, group in same):
            if isinstance(group[0], CodedColumn):
                texts = self._joined([column.values for column in group])
                found.append(list(map(texts.__getitem__, group[0].codes.tolist())))
            else:
                found.extend(map(self._cells, group))
        return self._lines(found)

    def _lines(self, cells: list[Sequence[str]]) -> str:
        if len(self.names) == 1:
            cells = [[cell or EMPTY for cell in cells[0]]]
        rows = cells[0] if len(cells) == 1 else map(self.delimiter.join, zip(*cells, strict=True))
        text = "\n".join(rows)
        return text and text + "\n"

    def _joined(self, values: list[Sequence[Any]]) -> list[str]:
        """Return the texts of the values of neighboring columns, joined."""
        key = tuple(map(id, values))
        if key not in self._texts:
            if len(self._texts) >= MOST_TEXTS:
                self._texts.clear()
            texts = map(self._cells, values)
            self._texts[key] = (values, list(map(self.delimiter.join, zip(*texts, strict=True))))
        return self._texts[key][1]

    def _cells(self, cells: Sequence[Any]) -> list[str]:
        """Return the texts of cells, quoted where needed."""
        texts = as_texts(cells)
        if not self._special.search("".join(texts)):
            return texts
        search = self._special.search
        return ['"' + one.replace('"', '""') + '"' if search(one) else one for one in texts]


def as_texts(cells: Any) -> list[str]:
    """Return cells as texts; the first one that is not None tells their type."""
    if isinstance(cells, np.ndarray):
        cells = cells.tolist()
    first = next((cell for cell in cells if cell is not None), None)
    if isinstance(first, bool):
        return ["true" if cell else "false" for cell in cells]
    if isinstance(first, float):
        return ["" if cell is None else f"{cell:.6g}" for cell in cells]
    return ["" if cell is None else cell if isinstance(cell, str) else str(cell) for cell in cells]


# ---------------------------------------- columns of few values


class CodedColumn(Sequence[Any]):
    """A sequence of N cells, stored as a number per cell.

    Columns that share ``values``, or ``codes``, should share the object: what is made of them is
    then made once.

    Args:
        values: the distinct values; of one type.
        codes: (N,) which of them each cell is, from 0.
    """

    def __init__(self, values: Sequence[Any], codes: NDArray[np.int64]) -> None:
        self.values = values
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return CodedColumn(self.values, self.codes[place])
        return self.values[self.codes[place]]

    def __eq__(self, other: object) -> bool:
        """Whether the cells are those of another sequence."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy
        return np.asarray(self.values, dtype=dtype)[self.codes]

    def __repr__(self) -> str:
        return f"CodedColumn({len(self)} cells of {len(self.values)} values)"

    def take(self, places: Any) -> CodedColumn:
        """Return some of the cells."""
        return CodedColumn(self.values, self.codes[np.asarray(places, dtype=np.int64)])

    def to_arrow(self) -> Any:
        """Return the cells as a plain Arrow array."""
        import pyarrow as pa

        return pa.array(self.values).take(pa.array(self.codes))
