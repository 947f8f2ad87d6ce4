"""Reading text and delimited rows, writing files atomically; errors name the file and line."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hierlearn.errors import DataError, HierlearnError, place, plural
from hierlearn.files.compressed import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LONGEST_CELL = 2**31 - 1  # the most that csv accepts everywhere; its default is too short for texts


class WriteError(HierlearnError, OSError):
    """A file cannot be written at its path."""


def read_text(path: Path | str) -> str:
    """Read UTF-8 text, also of a .gz, with its line ends as line feeds; refuse an empty file."""
    path = Path(path)
    try:
        raw = read_bytes(path)
    except OSError as error:
        raise cannot_read(path, error) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise not_utf8(path, line, raw[error.start]) from None
    if not text.strip():
        raise DataError(f"{path} is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_rows(path: Path | str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Read a CSV file, or TSV by its ending: the header, and each row with its line number.

    Cells are stripped; rows whose cells are all empty are left out.
    """
    path = Path(path)
    header, rows = parse_rows(path, io.StringIO(read_text(path)))
    stripped = ((line, [cell.strip() for cell in row]) for line, row in rows)
    return header, [(line, row) for line, row in stripped if any(row)]


def stream_rows(path: Path | str) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Read CSV or TSV one row at a time, for a file of any size.

    Cells are as they are written, not stripped. A row of empty cells is a row, a blank line is not.
    """
    path = Path(path)
    header, rows = parse_rows(path, text_lines(path))
    if not any(header):
        raise DataError(
            f"{path} is empty or begins with an empty line; write the column names into line 1"
        )
    return header, rows


def delimiter_of(path: Path) -> str:
    """Return what separates the cells of a row: a tab in ``.tsv``, else a comma."""
    return "\t" if path.suffix.lower() == ".tsv" else ","


def parse_rows(
    path: Path, lines: Iterable[str]
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header of CSV or TSV lines, and an iterator of (line number, row)."""
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader(lines, delimiter=delimiter_of(path), strict=True)

    def rows() -> Iterator[list[str]]:
        try:
            yield from reader
        except csv.Error as error:
            raise DataError(
                f"{place(path, reader.line_num)}: {error}; check the quotes of this row"
            ) from None

    cells = rows()
    header = [name.strip() for name in next(cells, [])]
    refuse_duplicates(header, place(path, 1))

    def table() -> Iterator[tuple[int, list[str]]]:
        width = len(header)
        for row in cells:
            if len(row) < 2 and not any(cell.strip() for cell in row):
                continue
            if len(row) != width:
                raise DataError(
                    f"{place(path, reader.line_num)}: {plural(len(row), 'cell')}, but the "
                    f"header has {width}; complete the row, or quote the cell that holds the "
                    f"delimiter"
                )
            yield reader.line_num, row

    return header, table()


def refuse_duplicates(columns: Sequence[str], where: str) -> None:
    """Refuse two columns with the same name."""
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise DataError(f"{where}: two columns have the name {twice!r}; rename one of them")


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file with their ends as line feeds."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise find_not_utf8(path) from error
    except OSError as error:
        raise cannot_read(path, error) from None


def find_not_utf8(path: Path) -> DataError:
    """Return the error of the first byte that is not UTF-8, reading one line at a time."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return not_utf8(path, number, line[error.start])
    return DataError(f"{path} changed while it was read")


def not_utf8(path: Path, line: int, byte: int) -> DataError:
    """Return the error of a byte that is not UTF-8."""
    return DataError(
        f"{place(path, line)}: byte 0x{byte:02x} is not UTF-8; "
        f"convert the file, for example with: iconv -f latin1 -t utf-8"
    )


def cannot_read(path: Path, error: OSError) -> DataError:
    """Return the error of a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: no such file")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path} is a folder, not a file")
    return DataError(f"{path}: {error.strerror}")


@contextmanager
def atomic_write(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """Write to a temporary file beside ``path`` and rename it when the block ends without error.

    Raises:
        WriteError: naming the file, its folder and the reason.
    """
    path = Path(path)
    refuse_folder(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open(mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_writable(*paths: Path | str) -> None:
    """Refuse paths that cannot be written, before any work is done; nothing is left behind."""
    for path in map(Path, paths):
        refuse_folder(path)
        folder = next(above for above in path.absolute().parents if above.exists())
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise cannot_write(path, error) from None


def check_new(path: Path, force: bool, inputs: Iterable[Path | str] = ()) -> None:
    """Refuse a file that exists, unless ``force`` allows to replace it; never replace an input."""
    for one in inputs:
        if path.exists() and Path(one).exists() and path.samefile(one):
            raise WriteError(f"{path} is an input; write to another file")
    if path.is_file() and not force:
        raise WriteError(f"{path} exists; pass --force to replace it")
    check_writable(path)


def refuse_folder(path: Path) -> None:
    """Refuse to write a file where a folder is."""
    if not path.name or path.is_dir():
        raise WriteError(f"cannot write to {path}, which is a folder; name a file in it")


def cannot_write(path: Path, error: OSError) -> WriteError:
    """Return the error of a file that cannot be written, without naming temporary files."""
    not_a_folder = isinstance(error, (FileExistsError, NotADirectoryError))
    reason = "that is no folder" if not_a_folder else error.strerror or str(error)
    failure = WriteError(
        f"cannot write {path.name} into {path.parent}: {reason}; "
        f"name a file in a folder that you can write to"
    )
    failure.strerror = reason
    return failure
