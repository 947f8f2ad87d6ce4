"""CSV and TSV files: through pyarrow where it is installed, else row by row, to the same result.

pyarrow reads blocks that end with a row. A block is left to the csv module, and with it the rest of
the file, where the two could differ: quotes that neither enclose a cell nor are doubled inside of
one, carriage returns on their own, rows of another length, and bytes that are not UTF-8. Everything
is read as text, so that ``007`` and ``NA`` stay what they are.
"""

from __future__ import annotations

import sys
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.datasets.tables.arrow import ArrowChunk, plain_numbers
from hierlearn.datasets.tables.table import TableChunk, TableFile
from hierlearn.errors import arg
from hierlearn.files import Start, announced_delimiter, stream_rows
from hierlearn.files.reading import is_compressed, open_content, skip
from hierlearn.files.rows import check_delimiter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hierlearn.datasets.tables.readers import Span


BLOCK = 1 << 28  # bytes that are read at a time
SMALL_BLOCK = 1 << 20  # the same where memory must not grow with the file
COMPRESSED_BLOCK = 1 << 24  # the same of a compressed file, whose size is not known
LONGEST = 1 << 28  # bytes of a row; longer ones are left to the csv module
ARROW_BLOCK = 1 << 22  # bytes that a thread of pyarrow parses at a time
FIRST = 1000  # cells that are tried before a column is taken for numbers
ROWS = 1 << 16  # rows of a chunk that the csv module parses
QUOTE, LINE_FEED = ord('"'), ord("\n")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANKS = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())  # what strip strips


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
        remedy = f"; set {arg('delimiter=')} if that is wrong"
        self.delimiter = (
            announced_delimiter(path, remedy) if delimiter is None else check_delimiter(delimiter)
        )
        self.columns = tuple(stream_rows(path, self.delimiter)[0])

    def chunks(
        self, columns: Sequence[str], rows_per_chunk: int | None = None
    ) -> Iterator[TableChunk]:
        """Yield the rows in order."""
        if len(self.columns) > 1 and has_arrow():
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


# ---------------------------------------- through pyarrow


class TextChunk(ArrowChunk):
    """Rows of a CSV file, whose columns are Arrow strings, null where a cell is empty."""

    # The columns that were asked for last, since a column is asked for several times in a row.
    _last: tuple[str, list[Any]] | None = None
    _last_distinct: tuple[str, list[Any], NDArray[np.int64]] | None = None

    def cells(self, name: str) -> list[Any]:
        """Return the cells of a column as stripped texts."""
        import pyarrow.compute as pc

        if self._last is None or self._last[0] != name:
            column = self.columns[name]
            if 2 * len(pc.unique(column.slice(0, FIRST))) < min(len(column), FIRST):
                values, codes = self.distinct(name)
                found = np.array(values, dtype=object)[codes]
            else:
                found = pc.fill_null(column, "").to_numpy(zero_copy_only=False)
            self._last = (name, list(map(str.strip, found.tolist())))
        return self._last[1]

    def distinct(self, name: str) -> tuple[list[Any], NDArray[np.int64]]:
        """Return the distinct cells of a column as they first occur, and which each row has."""
        import pyarrow.compute as pc

        if self._last_distinct is None or self._last_distinct[0] != name:
            column = pc.fill_null(pc.utf8_trim(self.columns[name], characters=BLANKS), "")
            found = column.combine_chunks().dictionary_encode()
            values: list[Any] = found.dictionary.to_numpy(zero_copy_only=False).tolist()
            self._last_distinct = (name, values, found.indices.to_numpy().astype(np.int64))
        return self._last_distinct[1:]

    def column(self, name: str, kind: str) -> NDArray[Any]:
        """Return (n,) values of one column; texts are stripped already."""
        if kind != "text":
            return super().column(name, kind)
        found = np.empty(len(self), dtype=object)
        found[:] = self.cells(name)
        return found

    def texts(self, name: str) -> list[str]:
        """Return n texts, empty where one is missing."""
        return list(self.cells(name))

    def declared_kind(self, name: str) -> None:
        """Return None: the cells must tell."""

    def number_column(self, name: str) -> NDArray[np.float32]:
        """Return (n,) float32 of one column, NaN where a cell is empty."""
        import pyarrow.compute as pc

        column = as_floats(self.columns[name])
        if column is None:
            trimmed = pc.utf8_trim(self.columns[name], characters=BLANKS)
            column = as_floats(pc.if_else(pc.equal(trimmed, ""), None, trimmed))
        values = None if column is None else plain_numbers(column)
        return super().number_column(name) if values is None else values


def as_floats(column: Any) -> Any:
    """Return strings as float64, None where one of them is no number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.cast(column.slice(0, FIRST), pa.float64())  # a long column takes long to fail
        return pc.cast(column, pa.float64())
    except pa.ArrowInvalid:
        return None


def arrow_chunks(
    file: DelimitedFile,
    columns: Sequence[str],
    rows_per_chunk: int | None,
    span: Span | None = None,
) -> Iterator[TableChunk]:
    """Yield the rows of a file in order, like ``DelimitedFile.parsed_chunks``.

    Args:
        file: the table.
        columns: the columns to read.
        rows_per_chunk: the most rows of a chunk; None for all rows in one.
        span: the bytes to read, None for all. Where the csv module must go on, it goes on to the
            end of the file.
    """
    waiting: list[tuple[Any, Sequence[int]]] = []
    count = 0
    size = BLOCK if rows_per_chunk is None else SMALL_BLOCK
    for part in table_parts(file, columns, size, span):
        waiting.append(part)
        count += len(part[1])
        while rows_per_chunk is not None and count >= rows_per_chunk:
            table, lines = joined(waiting)
            yield as_chunk(file, table.slice(0, rows_per_chunk), lines[:rows_per_chunk])
            waiting = [(table.slice(rows_per_chunk), lines[rows_per_chunk:])]
            count -= rows_per_chunk
    if count:
        yield as_chunk(file, *joined(waiting))


def as_chunk(file: DelimitedFile, table: Any, lines: Sequence[int]) -> TextChunk:
    """Return rows as a chunk of a table."""
    return TextChunk(file.path, {name: table.column(name) for name in table.column_names}, lines)


def joined(parts: Sequence[tuple[Any, Sequence[int]]]) -> tuple[Any, Sequence[int]]:
    """Return consecutive parts as one; line numbers stay a range where they are one."""
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    table = pa.concat_tables([part for part, _ in parts])
    lines = [one for _, one in parts if len(one)]
    first, last = lines[0][0], lines[-1][-1]
    if all(isinstance(one, range) for one in lines) and last - first + 1 == table.num_rows:
        return table, range(first, last + 1)
    return table, list(chain.from_iterable(lines))


def table_parts(
    file: DelimitedFile, columns: Sequence[str], size: int, span: Span | None
) -> Iterator[tuple[Any, Sequence[int]]]:
    """Yield the rows as Arrow tables of strings, each with the line of every row."""
    import pyarrow as pa

    offset, lines = (span.begin, span.lines) if span is not None else (0, 0)  # what has been read
    for block in blocks(file, size, span):
        found = None if block is None else parse_block(file, columns, block, is_first=not offset)
        if block is None or found is None:
            start = Start(file.columns, offset, lines) if offset else Start()
            for chunk in file.parsed_chunks(columns, ROWS, start):
                cells = {name: pa.array(chunk.cells(name), pa.string()) for name in columns}
                yield pa.table(cells), chunk.lines
            return
        table, ends = found
        if table.num_rows:
            yield table, shifted(ends, lines)
        offset += len(block)
        if offset < size_of(file):
            lines += block.count(b"\n")


def shifted(lines: Sequence[int], by: int) -> Sequence[int]:
    """Return line numbers with something added to each."""
    if isinstance(lines, range):
        return range(lines.start + by, lines.stop + by)
    return [line + by for line in lines]


def blocks(file: DelimitedFile, size: int, span: Span | None = None) -> Iterator[bytes | None]:
    """Yield blocks of about a size that end with a row; None where the csv module must go on."""
    rest = b""
    begin, end = (0, None) if span is None else (span.begin, span.end)
    left = (size_of(file) if end is None else end) - begin
    least = 1 if end is None else 0  # what a file has grown by is read
    if is_compressed(file.path):
        size = min(size, COMPRESSED_BLOCK)
    with open_content(file.path) as source:
        skip(source, begin)
        while more := source.read(min(size, max(left, least))):  # what is asked for is allocated
            block = rest + more
            left -= len(more)
            cut = last_row_end(block) if left > 0 else len(block)
            if cut:
                yield block[:cut]
            rest = block[cut:]
            if len(rest) > LONGEST:
                yield None
                return
    if rest:
        yield rest


def size_of(file: DelimitedFile) -> int:
    """Return how many bytes a file has, more than any where only reading would tell."""
    return sys.maxsize if is_compressed(file.path) else file.path.stat().st_size


def last_row_end(block: bytes) -> int:
    """Return where the last complete row ends, by the number of quotes before each line feed."""
    end = len(block)
    quotes = block.count(b'"')
    while True:
        feed = block.rfind(b"\n", 0, end)
        if feed < 0:
            return 0
        quotes -= block.count(b'"', feed, end)
        if quotes % 2 == 0:
            return feed + 1
        end = feed


def parse_block(
    file: DelimitedFile, columns: Sequence[str], block: bytes, *, is_first: bool
) -> tuple[Any, Sequence[int]] | None:
    """Return the rows of a block and the lines at which they end, None where it is not plain.

    Args:
        file: what the block is from.
        columns: those to read.
        block: complete rows.
        is_first: whether it begins with the header.
    """
    import pyarrow as pa
    import pyarrow.csv

    text = block.removeprefix(BYTE_ORDER_MARK) if is_first else block
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    if b"\r" in text or b"\0" in text:
        return None
    quoted = b'"' in text
    if quoted and not quotes_are_plain(text, file.delimiter):
        return None
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            read_options=pyarrow.csv.ReadOptions(
                column_names=list(file.columns), block_size=ARROW_BLOCK
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=file.delimiter,
                quote_char='"' if quoted else False,
                newlines_in_values=quoted,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=list(columns),
                column_types=dict.fromkeys(file.columns, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowCapacityError):
        return None
    lines = row_lines(text, table.num_rows)
    if is_first:
        table, lines = table.slice(1), lines[1:]
    return (table, lines) if len(lines) == table.num_rows else None


def quotes_are_plain(text: bytes, delimiter: str) -> bool:
    """Whether every quote encloses a cell, or is doubled inside of one that is enclosed.

    Of the quotes in order, the first, third, ... must open a cell, or follow a quote; the second,
    fourth, ... must close one, or precede a quote.
    """
    values = np.frombuffer(text, dtype=np.uint8)
    quotes = np.flatnonzero(values == QUOTE)
    if len(quotes) % 2:
        return False
    is_end = np.zeros(256, dtype=bool)
    is_end[[QUOTE, ord(delimiter), LINE_FEED]] = True
    opening, closing = quotes[::2], quotes[1::2]
    before = values[opening[int(opening[0] == 0) :] - 1]
    after = values[closing[: len(closing) - int(closing[-1] == len(values) - 1)] + 1]
    return bool(is_end[before].all() and is_end[after].all())


def row_lines(text: bytes, count: int) -> Sequence[int]:
    """Return the line at which each row ends, counted from 1; blank lines are no rows.

    Args:
        text: complete rows, with quotes that are plain.
        count: how many rows there are.
    """
    values = np.frombuffer(text, dtype=np.uint8)
    is_feed = values == LINE_FEED
    if np.count_nonzero(is_feed) + (not text.endswith(b"\n")) == count:
        return range(1, count + 1)
    feeds = np.flatnonzero(is_feed)
    if not text.endswith(b"\n"):
        feeds = np.append(feeds, len(text))
    quotes = np.flatnonzero(values == QUOTE)
    ending = np.flatnonzero(np.searchsorted(quotes, feeds) % 2 == 0)
    ends = feeds[ending]
    starts = np.concatenate([[0], ends[:-1] + 1])
    found: list[int] = (ending[ends > starts] + 1).tolist()
    return found
