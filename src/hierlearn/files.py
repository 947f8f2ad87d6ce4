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
    from collections.abc import Iterator

LONGEST_CELL = 2**31 - 1  # the most that csv takes on every system; texts exceed its default


class WriteError(HierlearnError, OSError):
    """A file cannot be written where it should be."""


def read_text(path: Path | str) -> str:
    """Read a UTF-8 text file, with line feeds whatever ends its lines; refuse an empty one."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, not a file") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{place(path, line)}: byte 0x{raw[error.start]:02x} is not UTF-8; "
            f"convert the file, for example with: iconv -f latin1 -t utf-8"
        ) from None
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
    csv.field_size_limit(LONGEST_CELL)
    text = read_text(path)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    rows = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(rows)]
        table = [(rows.line_num, [cell.strip() for cell in row]) for row in rows]
    except csv.Error as error:
        raise DataError(f"{place(path, rows.line_num)}: {error}") from None
    if len(set(header)) < len(header):
        again = next(name for name in header if header.count(name) > 1)
        raise DataError(f"{place(path, 1)}: two columns have the name {again!r}")
    table = [(line, row) for line, row in table if any(row) or (len(row) > 1 and not skip_empty)]
    for line, row in table:
        if len(row) != len(header):
            raise DataError(
                f"{place(path, line)}: {len(row)} cells, but the header has {len(header)}"
            )
    return header, table


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
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


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
