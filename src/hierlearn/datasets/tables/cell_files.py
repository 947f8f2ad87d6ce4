"""Tables whose cells are Python values: JSON lines, sheets of Excel, tables of SQLite.

All are read in order, a chunk at a time. How many cells may come out of a file is limited by its
size, as the bytes of a compressed one are: a few letters can stand for a million empty cells.
"""

from __future__ import annotations

import json
import sqlite3
import warnings
import zipfile
from abc import abstractmethod
from contextlib import closing, contextmanager
from datetime import time
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from hierlearn.datasets.tables.kinds import as_string
from hierlearn.datasets.tables.table import TableChunk, TableFile
from hierlearn.errors import DataError, DataWarning, HierlearnError, place, quoted, unknown_name
from hierlearn.files import refuse_duplicates
from hierlearn.files.locations import file_and_part
from hierlearn.files.reading import allowed, needed, open_regular, parse_json, text_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


EXCEL_ROWS = 1 << 20  # the most rows of a sheet
AHEAD = 1000  # rows that are read at a time
POINTER = 8  # bytes of a cell that is empty


class CellFile(TableFile):
    """A table that is read row by row.

    Attributes:
        size: how much the file holds: its bytes, or the values in it.
    """

    path: Path
    size: int

    @abstractmethod
    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the number of every row, and its cells in some columns."""

    def chunks(
        self, columns: Sequence[str], rows_per_chunk: int | None = None
    ) -> Iterator[TableChunk]:
        """Yield the rows in order."""
        columns = list(columns)
        rows = self._limited(columns)
        while part := list(islice(rows, rows_per_chunk)):
            cells = {name: [row[at] for _, row in part] for at, name in enumerate(columns)}
            yield TableChunk(self.path, cells, [line for line, _ in part])

    def _limited(self, columns: list[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield rows until they have more cells than the file can mean."""
        most = allowed(self.size) // POINTER
        cells = 0 if (self.num_rows or 0) * len(columns) <= most else most  # the first is too many
        for one in self.rows(columns):
            cells += len(columns)
            if cells > most:
                raise DataError(
                    f"{self.path} has {len(columns):,} columns and more than {most:,} cells, "
                    f"nearly all of them empty; is every one of them a column?"
                )
            yield one


# ---------------------------------------------------------------------- JSON lines


class JsonLinesFile(CellFile):
    """One JSON object per line; its keys are the columns, and a row may lack some of them.

    The file is read through once to find the keys of all rows.
    """

    format_name: ClassVar[str] = "JSON lines"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_rows = self.size = 0
        keys: dict[str, None] = {}
        for _, record in self._records():
            self.num_rows += 1
            self.size += 1 + len(record)
            keys.update(dict.fromkeys(record))
        if not keys:
            raise DataError(f"{path} is empty; write one JSON object per line")
        self.columns = tuple(keys)

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the line of every object, and its values."""
        for line, record in self._records():
            cells = [record.get(name) for name in columns]
            for name, cell in zip(columns, cells, strict=True):
                if isinstance(cell, dict):
                    raise DataError(
                        f"{place(self.path, line, name)}: the value is an object; write each of "
                        f"its values under a key of its own"
                    )
            yield line, cells

    def _records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for line, text in enumerate(text_lines(self.path), start=1):
            if not text.strip():
                continue
            try:
                record = parse_json(text)
            except DataError as error:
                is_list = line == 1 and text.lstrip().startswith("[")
                remedy = "; write one object per line, not a list of them" if is_list else ""
                raise DataError(f"{place(self.path, line)}: {error.message}{remedy}") from None
            if not isinstance(record, dict):
                raise DataError(
                    f"{place(self.path, line)}: a JSON {type(record).__name__}; write one object "
                    f"per line"
                )
            if "\\ud" in text.lower():
                try:
                    json.dumps(record, ensure_ascii=False).encode()
                except UnicodeEncodeError:
                    raise DataError(
                        f"{place(self.path, line)}: half of a surrogate pair, which is no text; "
                        f"remove it"
                    ) from None
            yield line, record


# ---------------------------------------------------------------------- Excel


class ExcelFile(CellFile):
    """A sheet of an Excel workbook: the first one, or that of ``rows.xlsx::March``.

    The first row with a cell is the header. Rows without one are left out; the number of a row is
    that of the sheet. Of a formula, the value that was stored is read.
    """

    format_name: ClassVar[str] = "Excel"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file, part = file_and_part(path)
        with opened_workbook(self.file) as (book, self.size):
            shown = [one.title for one in book.worksheets if one.sheet_state == "visible"]
            names = shown or [one.title for one in book.worksheets]
            if not names:
                raise DataError(f"{self.file} has no sheet of cells")
            if part is not None and part not in book.sheetnames:
                raise DataError(f"{self.file}: {unknown_name('sheet', part, names)}")
            self.sheet = names[0] if part is None else part
            if part is None and len(names) > 1:
                others = f"{quoted(names[1:], most=5)}; name another as {self.file}::{names[1]}"
                message = f"{self.file}: the sheet {self.sheet!r} is read, and not {others}"
                warnings.warn(message, DataWarning, stacklevel=2)
            header = next(self._filled(book), None)
        if header is None:
            raise DataError(f"{path} is empty; write the column names into the first row")
        self._header, names_of = header
        while names_of and names_of[-1] is None:
            names_of.pop()
        self.columns = tuple(as_string(name) for name in names_of)
        refuse_duplicates(self.columns, place(path, self._header))

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the number of every row in the sheet, and its cells."""
        places = [self.columns.index(name) for name in columns]
        width = len(self.columns)
        with opened_workbook(self.file) as (book, _):
            for line, cells in self._filled(book):
                if line == self._header:
                    continue
                if any(cell is not None for cell in cells[width:]):
                    raise DataError(
                        f"{place(self.path, line)}: a cell beyond the {width} columns of the "
                        f"header; name its column in the first row, or clear it"
                    )
                cells += [None] * (width - len(cells))
                yield line, [cells[at] for at in places]

    def _filled(self, book: Any) -> Iterator[tuple[int, list[Any]]]:
        """Yield the rows that have a cell, with their numbers; blank texts are empty cells."""
        sheet = book[self.sheet]
        sheet.reset_dimensions()  # what a file says of its size may be wrong
        rows = enumerate(sheet.iter_rows(max_row=EXCEL_ROWS, values_only=True), start=1)
        while True:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of styles and dates out of range
                part = list(islice(rows, AHEAD))
            if not part:
                return
            for line, row in part:
                cells = list(row)
                for at, cell in enumerate(row):
                    if isinstance(cell, str):
                        cells[at] = cell.strip() or None
                    elif isinstance(cell, time):
                        cells[at] = cell.isoformat()
                if any(cell is not None for cell in cells):
                    yield line, cells


@contextmanager
def opened_workbook(path: Path) -> Iterator[tuple[Any, int]]:
    """Open a workbook for reading; yield it and the size of its file."""
    with needed(path, "reading Excel", "openpyxl"):
        import openpyxl
    with open_regular(path) as file:
        try:
            size = file.seek(0, 2)
            with zipfile.ZipFile(file) as packed:
                content = sum(one.file_size for one in packed.infolist())
            if content > allowed(size):
                raise DataError(
                    f"{path} has more than {allowed(size):,} bytes once decompressed; is it the "
                    f"right file?"
                )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what is not read, such as styles
                book = openpyxl.load_workbook(
                    file, read_only=True, data_only=True, keep_links=False
                )
            with closing(book):
                yield book, size
        except HierlearnError:
            raise
        except Exception as error:  # of openpyxl, zipfile and expat, which check little
            reason = (str(error).splitlines() or [""])[0][:160] or type(error).__name__
            raise DataError(
                f"{path} is not an Excel workbook that can be read ({reason}); save it as .xlsx "
                f"again, or as CSV"
            ) from error


# ---------------------------------------------------------------------- SQLite


class SqliteFile(CellFile):
    """A table of an SQLite database: the only one, or that of ``rows.db::patients``.

    The file is never written. Views and virtual tables are not read: both run what the file says.
    """

    format_name: ClassVar[str] = "SQLite"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file, part = file_and_part(path)
        with opened_database(self.file) as (database, self.size):
            kinds: dict[str, str] = {}  # what each is instead of a table, if anything
            asked = database.execute("SELECT type, name, rootpage FROM sqlite_master ORDER BY name")
            for kind, name, root in asked.fetchall():
                if kind == "view":
                    kinds[name] = "a view"
                elif kind == "table" and not str(name).startswith("sqlite_"):
                    kinds[name] = "" if root else "a virtual table"
            names = [name for name, reason in kinds.items() if not reason]
            if part is None:
                if len(names) != 1:
                    found = f"the tables {quoted(names, most=10)}" if names else "no table"
                    raise DataError(
                        f"{self.file} has {found}; name one as {self.file}::"
                        f"{names[0] if names else 'TABLE'}"
                    )
                part = names[0]
            if part not in kinds:
                raise DataError(f"{self.file}: {unknown_name('table', part, names)}")
            if kinds[part]:
                raise DataError(
                    f"{self.file}: {part!r} is {kinds[part]}; write its rows into a table with "
                    f"CREATE TABLE ... AS SELECT, or export them as CSV"
                )
            self.table = part
            asked = database.execute(f"PRAGMA table_info({as_identifier(part)})")
            self.columns = tuple(name for _, name, *_ in asked)

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the number of every row from 1, and its cells."""
        names = ", ".join(map(as_identifier, columns)) or "NULL"
        with opened_database(self.file) as (database, _):
            asked = database.execute(f"SELECT {names} FROM {as_identifier(self.table)}")
            yield from enumerate(asked, start=1)

    def no_rows(self) -> DataError:
        """Return the error of a table without rows."""
        return DataError(f"{self.path}: the table {self.table!r} has no rows")


def as_identifier(name: str) -> str:
    """Return a name as SQL quotes it."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


@contextmanager
def opened_database(path: Path) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Open a database for reading alone; yield it and the size of its file."""
    with open_regular(path) as file:
        size = file.seek(0, 2)
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                database.execute(f"PRAGMA {setting}")
            yield database, size
    except (sqlite3.Error, sqlite3.Warning, UnicodeError, OverflowError, MemoryError) as error:
        raise DataError(f"{path} is not an SQLite database that can be read: {error}") from error
