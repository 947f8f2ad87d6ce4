"""DelimitedText: columns as the text of a CSV or TSV file, as Python's csv module writes it.

Booleans are in lower case and floats have six digits. Of a column that repeats a few values, each
value becomes text once, and neighboring columns with the same codes are one: a row is then a lookup
or two and a float.
"""

from __future__ import annotations

import csv
import io
import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.coded_column import CodedColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EMPTY = '""'  # an empty cell that is alone in its row
MOST_TEXTS = 1024  # groups of columns whose texts are held


class DelimitedText:
    """Makes text of some columns, rows after rows.

    Args:
        names: the columns, in order.
        delimiter: what separates cells.
    """

    def __init__(self, names: Sequence[str], delimiter: str) -> None:
        self.names = names
        self.delimiter = delimiter
        self._special = re.compile(f"[{re.escape(quoted_characters(delimiter))}]")
        # The texts of the values of columns with the same codes, held with what they were made of.
        self._texts: dict[tuple[int, ...], tuple[list[Sequence[Any]], list[str]]] = {}

    def header(self) -> str:
        """Return the names of the columns as a row."""
        return self._lines([self._cells([name]) for name in self.names])

    def rows(self, columns: Mapping[str, Sequence[Any]]) -> str:
        """Return rows, given as columns by name."""
        found: list[Sequence[str]] = []
        chosen = [columns[name] for name in self.names]
        for coded, group in groupby(chosen, key=codes_of):
            if coded is None:
                found.extend(map(self._cells, group))
            else:
                texts = self._joined([column.values for column in group])  # type: ignore[attr-defined]
                found.append(list(map(texts.__getitem__, coded.codes.tolist())))
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


class Codes:
    """The codes of a column, equal where they are the same object."""

    def __init__(self, codes: Any) -> None:
        self.codes = codes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codes) and other.codes is self.codes

    __hash__ = None  # type: ignore[assignment]


def codes_of(column: Sequence[Any]) -> Codes | None:
    """Return the codes of a column; None where it has none."""
    return Codes(column.codes) if isinstance(column, CodedColumn) else None


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


def quoted_characters(delimiter: str) -> str:
    """Return the characters that csv quotes; whether a carriage return is one depends on Python."""
    found = ""
    for character in f'{delimiter}"\r\n':
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerow([f"a{character}a", ""])
        found += character if text.getvalue().startswith('"') else ""
    return found
