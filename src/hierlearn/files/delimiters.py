"""What separates the cells of a CSV file: told by its ending, or found in its first rows."""

from __future__ import annotations

import csv
import io
from itertools import islice
from typing import TYPE_CHECKING

from hierlearn.errors import DataError
from hierlearn.files.compressed import plain_ending
from hierlearn.files.reading import open_content, refuse_utf16

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
SAMPLE = 1 << 16  # bytes that are looked at
ROWS = 200  # rows that are looked at
MOST = 0.5  # the fraction of the rows that must have as many cells as the header


def delimiter_of(path: Path) -> str:
    """Return what the ending of a file says: a tab in ``.tsv`` and ``.txt``, else a comma."""
    return "\t" if plain_ending(path) in (".tsv", ".txt") else ","


def check_delimiter(delimiter: str) -> str:
    """Return a delimiter that a user gave, where a tab may be written as a word."""
    found = "\t" if delimiter in ("tab", "\\t") else delimiter
    if not isinstance(found, str) or len(found) != 1 or found in '"\r\n ' or not found.isascii():
        raise DataError(
            f"delimiter must be one character such as ; or | or tab, not {delimiter!r}; leave it "
            f"out to have it found"
        )
    return found


def find_delimiter(path: Path) -> str:
    """Return what separates the cells of a file.

    That of its ending, unless the first rows do not fit it and fit another one of ``NAMES``.
    """
    usual = delimiter_of(path)
    text, is_all = first_text(path)
    fits = {one: fit(text, is_all, one) for one in NAMES}
    header_width, share = fits[usual]
    if header_width > 1 and share == 1.0:
        return usual
    others = [one for one in NAMES if one != usual and fits[one][0] > 1]
    wanted = 1.0 if header_width > 1 else MOST
    found = [one for one in others if fits[one][1] >= wanted]
    return max(found, key=lambda one: (fits[one][1], fits[one][0]), default=usual)


def first_text(path: Path) -> tuple[str, bool]:
    """Return the beginning of a file as text, and whether that is all of it."""
    with open_content(path) as file:
        raw = file.read(SAMPLE)
    refuse_utf16(path, raw)
    text = raw.decode("utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n"), len(raw) < SAMPLE


def fit(text: str, is_all: bool, delimiter: str) -> tuple[int, float]:
    """Return how many columns a delimiter gives the header, and the fraction of rows that fit it.

    Args:
        text: the beginning of a file.
        is_all: whether the last row is complete.
        delimiter: one of ``NAMES``.
    """
    try:
        rows = list(islice(csv.reader(io.StringIO(text), delimiter=delimiter), ROWS + 1))
    except csv.Error:
        return 0, 0.0
    if not is_all and len(rows) <= ROWS:
        rows.pop()
    if not rows:
        return 0, 0.0
    width = len(rows[0])
    others = [row for row in rows[1:] if row]
    fitting = sum(len(row) == width for row in others)
    return width, fitting / len(others) if others else 1.0
