"""Delimited rows of CSV and TSV files; errors name the file and line."""

from __future__ import annotations

import csv
import io
import warnings
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hierlearn.errors import DataError, DataWarning, arg, place, plural
from hierlearn.files.reading import (
    check_regular,
    open_content,
    plain_ending,
    read_text,
    refuse_utf16,
    text_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


LONGEST_CELL = 2**31 - 1  # the most that csv accepts everywhere; its default is too short for texts
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
SAMPLE = 1 << 16  # bytes that are looked at
SAMPLE_ROWS = 200  # rows that are looked at
MOST = 0.5  # the fraction of the rows that must have as many cells as the header


@dataclass(frozen=True)
class Start:
    """Where reading begins in a file whose first rows were read before.

    Attributes:
        header: the columns; empty at the beginning of the file, where the header is.
        offset: the byte at which a row begins.
        lines: how many lines come before it.
    """

    header: Sequence[str] = ()
    offset: int = 0
    lines: int = 0


START = Start()


def read_rows(path: Path | str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Read a CSV or TSV file: the header, and each row with its line number.

    Cells are stripped; rows whose cells are all empty are left out.
    """
    path = Path(path)
    text = io.StringIO(read_text(path))
    header, rows = parse_rows(path, text, announced_delimiter(path), keep_blank=False)
    stripped = ((line, [cell.strip() for cell in row]) for line, row in rows)
    return header, [(line, row) for line, row in stripped if any(row)]


def announced_delimiter(path: Path, remedy: str = "") -> str:
    """Return the delimiter of a file, with a warning where it is not that of its ending.

    Args:
        path: the file.
        remedy: what to do if it is wrong.
    """
    check_regular(path)
    delimiter = find_delimiter(path)
    if delimiter != (usual := delimiter_of(path)):
        warnings.warn(
            f"{path}: cells are separated by {NAMES[delimiter]}, not by {NAMES[usual]}{remedy}",
            DataWarning,
            stacklevel=2,
        )
    return delimiter


def stream_rows(
    path: Path | str, delimiter: str | None = None, start: Start = START
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Read CSV or TSV one row at a time, for a file of any size.

    Cells are as they are written, not stripped. A row of empty cells is a row. A blank line is
    none, except in a file of one column, where it is an empty cell if a row follows.

    Args:
        path: the file.
        delimiter: what separates cells; by default found.
        start: where to begin, if not at the header.
    """
    path = path if isinstance(path, Path) else Path(path)
    delimiter = delimiter or announced_delimiter(path)
    header, rows = parse_rows(path, text_lines(path, start.offset), delimiter, start)
    if not any(header):
        raise DataError(
            f"{path} is empty or begins with an empty line; write the column names into line 1"
        )
    return header, rows


def parse_rows(
    path: Path,
    lines: Iterable[str],
    delimiter: str,
    start: Start = START,
    *,
    keep_blank: bool = True,
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header of CSV or TSV lines, and an iterator of (line number, row).

    Args:
        path: the file, for errors.
        lines: its lines.
        delimiter: what separates cells.
        start: where the lines begin.
        keep_blank: whether blank lines before a row of a file of one column are rows.
    """
    csv.field_size_limit(LONGEST_CELL)
    lines = without_nul(path, lines, start)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)

    def rows() -> Iterator[list[str]]:
        try:
            yield from reader
        except csv.Error as error:
            raise DataError(
                f"{place(path, start.lines + reader.line_num)}: {error}; check the quotes of this "
                f"row"
            ) from None

    cells = rows()
    header = list(start.header) or [name.strip() for name in next(cells, [])]
    refuse_duplicates(header, place(path, 1))

    def table() -> Iterator[tuple[int, list[str]]]:
        width = len(header)
        for row in cells:
            if len(row) != width:
                if not row or (len(row) == 1 and row[0].isspace()):
                    continue
                raise DataError(
                    f"{place(path, start.lines + reader.line_num)}: {plural(len(row), 'cell')}, "
                    f"but the header has {width}; complete the row, or quote the cell that holds "
                    f"the delimiter"
                )
            yield start.lines + reader.line_num, row

    def column() -> Iterator[tuple[int, list[str]]]:
        blank: list[int] = []  # lines that are rows if another row follows
        count = first = 0
        for row in cells:
            line = start.lines + reader.line_num
            if not row or (row[0].isspace() and len(row) == 1):
                blank.append(line)
                continue
            if len(row) > 1:
                raise DataError(
                    f"{place(path, line)}: {plural(len(row), 'cell')}, but the header has 1; "
                    f"quote the cell that holds the delimiter"
                )
            if not keep_blank:
                blank.clear()
            first = first or (blank[0] if blank else 0)
            count += len(blank)
            yield from ((one, [""]) for one in blank)
            blank.clear()
            yield line, row
        if count:
            warnings.warn(
                f"{path}: {plural(count, 'blank line')} (the first is line {first}) read as "
                f"{'an empty cell' if count == 1 else 'empty cells'}, since the file has one "
                f'column; write "" to make that clear',
                DataWarning,
                stacklevel=2,
            )

    return header, column() if len(header) == 1 else table()


def without_nul(path: Path, lines: Iterable[str], start: Start) -> Iterator[str]:
    """Yield lines; raise on one with a NUL, which is no part of a text."""
    for number, line in enumerate(lines, start.lines + 1):
        if "\0" in line:
            raise DataError(
                f"{place(path, number)}: a NUL byte, which no text holds; the file is damaged, or "
                f"no table; write it again"
            )
        yield line


def refuse_duplicates(columns: Sequence[str], where: str) -> None:
    """Refuse two columns with the same name."""
    if len(set(columns)) < len(columns):
        twice = next(name for name, count in Counter(columns).items() if count > 1)
        raise DataError(f"{where}: two columns have the name {twice!r}; rename one of them")


# ----------------------------------------------------------------------
# What separates the cells of a CSV file: told by its ending, or found in its first rows.


def delimiter_of(path: Path) -> str:
    """Return what the ending of a file says: a tab in ``.tsv`` and ``.txt``, else a comma."""
    return "\t" if plain_ending(path) in (".tsv", ".txt") else ","


def check_delimiter(delimiter: str) -> str:
    """Return a delimiter that a user gave, where a tab may be written as a word."""
    character = "\t" if delimiter in ("tab", "\\t") else delimiter
    is_text = isinstance(character, str) and len(character) == 1 and character.isascii()
    if not is_text or character in '"\r\n ':
        raise DataError(
            f"{arg('delimiter')} must be one character such as ; or | or tab, not {delimiter!r}; "
            "leave it "
            f"out to have it found"
        )
    return character


def find_delimiter(path: Path) -> str:
    """Return what separates the cells of a file.

    That of its ending, unless the first rows do not fit it and fit another one of ``NAMES``.
    """
    usual = delimiter_of(path)
    with open_content(path) as file:
        raw = file.read(SAMPLE)
    refuse_utf16(path, raw)
    if raw[:2] == b"\x1f\x8b":  # packed, by a plain name: refused where it is read
        return usual
    text = raw.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    is_all = len(raw) < SAMPLE
    fits = {one: fit(text, is_all, one) for one in NAMES}
    header_width, share = fits[usual]
    if header_width > 1 and share == 1.0:
        return usual
    others = [one for one in NAMES if one != usual and fits[one][0] > 1]
    wanted = 1.0 if header_width > 1 else MOST
    fitting = [one for one in others if fits[one][1] >= wanted]
    return max(fitting, key=lambda one: (fits[one][1], fits[one][0]), default=usual)


def fit(text: str, is_all: bool, delimiter: str) -> tuple[int, float]:
    """Return how many columns a delimiter gives the header, and the fraction of rows that fit it.

    Args:
        text: the beginning of a file.
        is_all: whether the last row is complete.
        delimiter: one of ``NAMES``.
    """
    try:
        rows = list(islice(csv.reader(io.StringIO(text), delimiter=delimiter), SAMPLE_ROWS + 1))
    except csv.Error:
        return 0, 0.0
    if not is_all and len(rows) <= SAMPLE_ROWS:
        rows.pop()
    if not rows:
        return 0, 0.0
    width = len(rows[0])
    others = [row for row in rows[1:] if row]
    fitting = sum(len(row) == width for row in others)
    return width, fitting / len(others) if others else 1.0
