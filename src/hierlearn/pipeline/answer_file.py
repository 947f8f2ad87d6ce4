"""The file of answers: kept columns first and exact, formulas escaped where asked for.

A spreadsheet runs a cell of a CSV file that begins with ``=``, ``+``, ``-`` or ``@`` as a formula,
whoever wrote it. Escaping puts ``'`` in front of such a text. Numbers stay, and Parquet files and
JSON lines need nothing of it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.tables.write import CodedColumn, is_delimited, table_writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FORMULA = {"=", "+", "-", "@", "\t", "\r"}
PREFIX = "input_"


class AnswerFile:
    """A file that columns are appended to.

    Args:
        append: what writes rows.
        kept: the names of the columns that come from the input, by their names in the file.
        escape: whether formulas are escaped; None where none can be.

    Attributes:
        rows: how many rows of the input were answered.
        stopped: how many of the answers are above the terminal classes.
        unanswered: how many of these are no class at all.
        formulas: how many cells a spreadsheet would run as a formula.
    """

    def __init__(self, append: Any, kept: Mapping[str, str], escape: bool | None) -> None:
        self._append = append
        self._kept = kept
        self._escape = escape
        self._values: dict[int, Checked] = {}
        self.rows = self.stopped = self.unanswered = self.formulas = 0

    def append(self, columns: Mapping[str, Sequence[Any]], kept: Mapping[str, Any]) -> None:
        """Write rows: the columns of the answers, and those of the input by their own names."""
        given = {name: kept[source] for name, source in self._kept.items()}
        if self._escape is not None:
            given = {name: as_texts(cells) for name, cells in given.items()}
        found: dict[str, Any] = {**columns, **given}
        if self._escape is not None:
            found = {name: self._checked(cells) for name, cells in found.items()}
        self._append(found)
        if "stopped" in columns:
            self.rows += len(columns["stopped"])
            self.stopped += int(np.sum(columns["stopped"]))
            self.unanswered += count_empty(columns["path"])
        elif "row" in columns:  # several rows per row of the input
            self.rows += int(columns["row"][-1] - columns["row"][0]) + 1

    def _checked(self, cells: Sequence[Any]) -> Sequence[Any]:
        if isinstance(cells, CodedColumn):
            return self._checked_codes(cells)
        if not len(cells) or not isinstance(cells[0], str):
            return cells
        places = [place for place, cell in enumerate(cells) if is_formula(cell)]
        self.formulas += len(places)
        if not self._escape or not places:
            return cells
        found = list(cells)
        for place in places:
            found[place] = escaped(found[place])
        return found

    def _checked_codes(self, cells: CodedColumn) -> CodedColumn:
        """Check the values of a column instead of its cells, and those only once."""
        known = self._values.setdefault(id(cells.values), Checked(cells.values))
        if known.formulas is None:
            return cells
        self.formulas += int(np.count_nonzero(known.formulas[cells.codes]))
        return CodedColumn(known.escaped, cells.codes) if self._escape else cells


def count_empty(paths: Sequence[str]) -> int:
    """Return how many answers are no class."""
    if isinstance(paths, CodedColumn):
        return int(np.count_nonzero(paths.codes == len(paths.values) - 1))  # the root is the last
    return sum(not path for path in paths)


class Checked:
    """The values of columns, and which of them are formulas.

    Args:
        values: the values.

    Attributes:
        formulas: a boolean for each value; None where none is a formula.
        escaped: the values as they are written.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values  # held, so that their identity stays theirs
        found = [is_formula(value) for value in values]
        self.formulas = np.array(found) if any(found) else None
        self.escaped = [escaped(value) for value in values]


@contextmanager
def answer_file(
    path: Path | str, names: Sequence[str], keep: Sequence[str] = (), *, escape: bool = False
) -> Iterator[AnswerFile]:
    """Open a file of answers; it appears when the context ends without an error.

    Args:
        path: the file, its format by its ending; ``-`` for CSV on standard output.
        names: the columns of the answers, in order.
        keep: the columns of the input that come before them.
        escape: whether texts that a spreadsheet would run as a formula are escaped.
    """
    kept = kept_names(keep, names)
    delimited = is_delimited(path)
    every = [*kept, *names]
    header = file_names(path, names, keep, escape=escape)
    with table_writer(path, header) as append:

        def write(columns: Mapping[str, Sequence[Any]]) -> None:
            append({shown: columns[name] for shown, name in zip(header, every, strict=True)})

        yield AnswerFile(write, kept, escape if delimited else None)


def file_names(
    path: Path | str, names: Sequence[str], keep: Sequence[str], *, escape: bool
) -> list[str]:
    """Return the columns of a file of answers as they are written; see ``answer_file``."""
    every = [*kept_names(keep, names), *names]
    return [escaped(name) for name in every] if escape and is_delimited(path) else every


def kept_names(keep: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the input columns by their names in the file: ``input_class`` where class is taken."""
    found: dict[str, str] = {}
    taken = {*names, *keep}
    for source in keep:
        name = source
        while name in names or (name != source and name in taken):
            name = PREFIX + name
        found[name] = source
        taken.add(name)
    return found


def is_formula(cell: Any) -> bool:
    """Whether a spreadsheet would run a cell as a formula; numbers such as -3 it does not."""
    if not isinstance(cell, str) or cell[:1] not in FORMULA:
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return False


def escaped(cell: str) -> str:
    """Return a text that a spreadsheet shows and does not run."""
    return f"'{cell}" if is_formula(cell) else cell


def as_texts(cells: Any) -> list[str]:
    """Return the cells of an input column as exact texts."""
    values = cells.to_pylist() if hasattr(cells, "to_pylist") else cells
    return [exact(value) for value in values]


def exact(value: Any) -> str:
    """Return a value as text from which it can be read back; nothing where it is missing."""
    if value is None:
        return ""
    return ("false", "true")[value] if isinstance(value, bool) else str(value)
