"""Reading text and tables whole, writing files atomically; errors name the file and line."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hierlearn.errors import DataError, HierlearnError, place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_CELL = 2**31 - 1  # the most that csv takes on every system; texts exceed its default


class WriteError(HierlearnError, OSError):
    """A file cannot be written where it should be."""


def read_text(path: Path | str) -> str:
    """Read a UTF-8 text file, with line feeds whatever ends its lines; refuse an empty one."""
    path = Path(path)
    try:
        raw = path.read_bytes()
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


def read_rows(
    path: Path | str, *, skip_empty: bool = True
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Read a CSV file, or TSV by its ending: the header, and each row with its line number.

    Args:
        path: the file.
        skip_empty: leave out rows whose cells are all empty, not only blank lines.
    """
    path = Path(path)
    header, rows = parse_rows(path, io.StringIO(read_text(path)), skip_empty=skip_empty)
    return header, list(rows)


def stream_rows(path: Path | str) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Read the same a row at a time, for a file of any size; a row of empty cells is a row."""
    path = Path(path)
    header, rows = parse_rows(path, text_lines(path), skip_empty=False)
    if not any(header):
        raise DataError(f"{path} is empty")
    return header, rows


def parse_rows(
    path: Path, lines: Iterable[str], *, skip_empty: bool
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header of CSV or TSV lines, and the rows as they come, each with its line."""
    csv.field_size_limit(LONGEST_CELL)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    reader = csv.reader(lines, delimiter=delimiter, strict=True)

    def rows() -> Iterator[list[str]]:
        try:
            yield from reader
        except csv.Error as error:
            raise DataError(f"{place(path, reader.line_num)}: {error}") from None

    cells = rows()
    header = [name.strip() for name in next(cells, [])]
    if len(set(header)) < len(header):
        again = next(name for name in header if header.count(name) > 1)
        raise DataError(f"{place(path, 1)}: two columns have the name {again!r}")

    def table() -> Iterator[tuple[int, list[str]]]:
        for raw in cells:
            row = [cell.strip() for cell in raw]
            if not any(row) and (skip_empty or len(row) < 2):
                continue
            if len(row) != len(header):
                raise DataError(
                    f"{place(path, reader.line_num)}: {len(row)} cells, "
                    f"but the header has {len(header)}"
                )
            yield reader.line_num, row

    return header, table()


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, with line feeds whatever ends them."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise find_not_utf8(path) from error
    except OSError as error:
        raise cannot_read(path, error) from None


def find_not_utf8(path: Path) -> DataError:
    """Word the first byte of a file that is not UTF-8, reading a line at a time."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return not_utf8(path, number, line[error.start])
    return DataError(f"{path} changed while it was read")


def not_utf8(path: Path, line: int, byte: int) -> DataError:
    """Word a byte that is not UTF-8."""
    return DataError(
        f"{place(path, line)}: byte 0x{byte:02x} is not UTF-8; "
        f"convert the file, for example with: iconv -f latin1 -t utf-8"
    )


def cannot_read(path: Path, error: OSError) -> DataError:
    """Word the failure to read ``path``."""
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
    """Refuse paths that cannot become files, before any work is done for them; leave no trace."""
    for path in map(Path, paths):
        refuse_folder(path)
        folder = next(above for above in path.absolute().parents if above.exists())
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise cannot_write(path, error) from None


def check_new(path: Path, force: bool, inputs: Iterable[Path | str] = ()) -> None:
    """Refuse a file that is there already, unless it may be replaced; never one that is read."""
    for one in inputs:
        if path.exists() and Path(one).exists() and path.samefile(one):
            raise WriteError(f"{path} is what is read; write to another file")
    if path.is_file() and not force:
        raise WriteError(f"{path} exists; pass --force to replace it")
    check_writable(path)


def refuse_folder(path: Path) -> None:
    """Refuse to write a file where a folder is."""
    if not path.name or path.is_dir():
        raise WriteError(f"cannot write to {path}, which is a folder; name a file in it")


def cannot_write(path: Path, error: OSError) -> WriteError:
    """Word the failure to write ``path``; the temporary files on the way are not the user's."""
    not_a_folder = isinstance(error, (FileExistsError, NotADirectoryError))
    reason = "that is no folder" if not_a_folder else error.strerror or str(error)
    worded = WriteError(
        f"cannot write {path.name} into {path.parent}: {reason}; "
        f"name a file in a folder that you can write to"
    )
    worded.strerror = reason
    return worded
