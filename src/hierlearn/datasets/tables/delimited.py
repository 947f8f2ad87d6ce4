"""CSV and TSV files: through pyarrow where it is installed, else row by row, to the same result.

pyarrow reads blocks that end with a row. A block is left to the csv module, and with it the rest of
the file, where the two could differ: quotes that neither enclose a cell nor are doubled inside of
one, carriage returns on their own, rows of another length, and bytes that are not UTF-8. Everything
is read as text, so that ``007`` and ``NA`` stay what they are.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from hierlearn.datasets.tables.arrow import ArrowChunk
from hierlearn.datasets.tables.kinds import parse_numbers
from hierlearn.datasets.tables.table import TableChunk, TableFile, TablePart, joined_lines
from hierlearn.errors import arg
from hierlearn.files import Start, announced_delimiter, stream_rows
from hierlearn.files.reading import is_compressed, open_content, skip
from hierlearn.files.rows import START, check_delimiter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


BLOCK = 1 << 28  # bytes that are read at a time
SMALL_BLOCK = 1 << 20  # the same where memory must not grow with the file
PART_BLOCK = 1 << 24  # the same where only the beginnings of rows are looked for
COMPRESSED_BLOCK = 1 << 24  # the same of a compressed file, whose size is not known
LONGEST = 1 << 28  # bytes of a row; longer ones are left to the csv module
ARROW_BLOCK = 1 << 22  # bytes that a thread of pyarrow parses at a time
FIRST = 1000  # cells that are tried before a column is taken for numbers
ROWS = 1 << 16  # rows of a chunk that the csv module parses
QUOTE, LINE_FEED = ord('"'), ord("\n")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANKS = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())  # what strip strips


class Span(NamedTuple):
    """Some bytes of a CSV file, from the beginning of a row to the end of another.

    Attributes:
        begin: the first byte.
        end: the byte after the last one; None for the end of the file.
        lines: how many lines come before.
    """

    begin: int = 0
    end: int | None = None
    lines: int = 0


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
        if len(self.columns) == 1 or not has_arrow():
            yield from self.parsed_chunks(columns, rows_per_chunk)
            return
        waiting: list[tuple[Any, Sequence[int]]] = []
        count = 0
        for part in self._tables(columns, BLOCK if rows_per_chunk is None else SMALL_BLOCK):
            waiting.append(part)
            count += len(part[1])
            while rows_per_chunk is not None and count >= rows_per_chunk:
                table, lines = joined(waiting)
                yield TextChunk.of(
                    self.path, table.slice(0, rows_per_chunk), lines[:rows_per_chunk]
                )
                waiting = [(table.slice(rows_per_chunk), lines[rows_per_chunk:])]
                count -= rows_per_chunk
        if count:
            yield TextChunk.of(self.path, *joined(waiting))

    def parsed_chunks(
        self, columns: Sequence[str], rows_per_chunk: int | None = None, start: Start = START
    ) -> Iterator[TableChunk]:
        """Yield the rows in order, parsed by Python.

        Args:
            columns: the columns to read.
            rows_per_chunk: the most rows of a chunk; None for all rows in one.
            start: where to begin, if not at the first row.
        """
        header, rows = stream_rows(self.path, self.delimiter, start)
        places = {name: position for position, name in enumerate(header)}
        while part := list(islice(rows, rows_per_chunk)):
            cells = {name: [row[places[name]].strip() for _, row in part] for name in columns}
            yield TableChunk(self.path, cells, [line for line, _ in part])

    def parts(self, rows: int) -> list[TablePart]:
        """Return the parts of the file, which is read through once to find where rows begin.

        What follows a row from which on only the csv module can read the file is one part; so are
        all rows of a compressed file.
        """
        if len(self.columns) == 1 or is_compressed(self.path) or not has_arrow():
            return super().parts(rows)
        parts: list[TablePart] = []
        begin = line = 0  # of the part that is being measured
        before = count = 0  # the rows of the parts that are, and of this one
        offset = lines = 0  # what has been looked through
        for block in blocks(self.path, PART_BLOCK, Span()):
            parsed = parse_block(self, self.columns[:1], block, is_first=not offset)
            if block is None or parsed is None:
                return [*parts, TablePart(before, None, Span(begin, None, line))]
            ends, taken = parsed[1], 0
            feeds = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == LINE_FEED)
            starts = np.concatenate([[0], feeds + 1, [len(block)]])  # of each line
            while count + len(ends) - taken >= rows:
                taken += rows - count
                last = ends[taken - 1]  # the line at which the part ends, in this block
                end = offset + int(starts[last])
                parts.append(TablePart(before, rows, Span(begin, end, line)))
                begin, line = end, lines + last
                before, count = before + rows, 0
            count += len(ends) - taken
            offset += len(block)
            lines += len(feeds)
        return [*parts, TablePart(before, count, Span(begin, None, line))] if count else parts

    def _tables(self, columns: Sequence[str], size: int) -> Iterator[tuple[Any, Sequence[int]]]:
        """Yield the rows as Arrow tables of strings, each with the line of every row."""
        import pyarrow as pa

        span, left = self.within.span or Span(), self.within.rows
        offset, lines = span.begin, span.lines  # what has been read
        for block in blocks(self.path, size, span):
            parsed = parse_block(self, columns, block, is_first=not offset)
            if block is None or parsed is None:
                break
            table, ends = parsed
            if table.num_rows:
                is_range = isinstance(ends, range)
                first, last = lines + ends[0], lines + ends[-1]
                yield table, range(first, last + 1) if is_range else [one + lines for one in ends]
            left = None if left is None else left - table.num_rows
            offset += len(block)
            lines += block.count(b"\n")
        else:
            return
        # The csv module goes on, and would to the end of the file.
        start = Start(self.columns, offset, lines) if offset else START
        for chunk in self.parsed_chunks(columns, ROWS, start):
            cells = {name: pa.array(chunk.cells(name), pa.string()) for name in columns}
            yield pa.table(cells).slice(0, left), chunk.lines[:left]
            left = None if left is None else left - len(chunk)
            if left is not None and left <= 0:
                return


def has_arrow() -> bool:
    """Whether pyarrow can read CSV files."""
    return find_spec("pyarrow") is not None


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
                found = np.array(values, dtype=object)[codes].tolist()
            else:
                found = pc.fill_null(column, "").to_numpy(zero_copy_only=False).tolist()
            self._last = (name, list(map(str.strip, found)))
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

    def floats(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return (n,) numbers of one column, and which are missing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self.columns[name]
        for trimmed in (False, True):
            if trimmed:
                column = pc.utf8_trim(column, characters=BLANKS)
                column = pc.if_else(pc.equal(column, ""), None, column)
            with suppress(pa.ArrowInvalid):
                pc.cast(column.slice(0, FIRST), pa.float64())  # a long column takes long to fail
                numbers = pc.cast(column, pa.float64())
                values = numbers.to_numpy(zero_copy_only=False)
                missing = np.isnan(values)
                if np.count_nonzero(missing) == numbers.null_count:
                    return values, missing
                break  # such as nan, which means missing
        return parse_numbers(self.cells(name))


def joined(parts: Sequence[tuple[Any, Sequence[int]]]) -> tuple[Any, Sequence[int]]:
    """Return consecutive parts as one; line numbers stay a range where they are one."""
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    lines = [one for _, one in parts if len(one)]
    return pa.concat_tables([part for part, _ in parts]), joined_lines(lines)


def blocks(path: Path, size: int, span: Span) -> Iterator[bytes | None]:
    """Yield blocks of about a size that end with a row; None where the csv module must go on."""
    rest = b""
    if is_compressed(path):
        size, left = min(size, COMPRESSED_BLOCK), sys.maxsize
    else:
        left = (path.stat().st_size if span.end is None else span.end) - span.begin
    least = 1 if span.end is None else 0  # what a file has grown by is read
    with open_content(path) as source:
        skip(source, span.begin)
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
    file: DelimitedFile, columns: Sequence[str], block: bytes | None, *, is_first: bool
) -> tuple[Any, Sequence[int]] | None:
    """Return the rows of a block and the lines at which they end, None where it is not plain.

    Args:
        file: what the block is from.
        columns: those to read.
        block: complete rows; None where ``blocks`` has found none.
        is_first: whether it begins with the header.
    """
    import pyarrow as pa
    import pyarrow.csv

    if block is None:
        return None
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
