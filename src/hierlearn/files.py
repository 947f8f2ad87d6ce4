"""Reading text and tables whole, writing files atomically; errors name the file and line."""

from __future__ import annotations

import csv
import io
import os
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hierlearn.errors import DataError, place

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def read_rows(path: Path | str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Read a CSV file, or TSV by its ending: the header, and each row with its line number."""
    path = Path(path)
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
    table = [(line, row) for line, row in table if any(row)]
    for line, row in table:
        if len(row) != len(header):
            raise DataError(
                f"{place(path, line)}: {len(row)} cells, but the header has {len(header)}"
            )
    return header, table


@contextmanager
def atomic_write(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """Write to a temporary file beside ``path`` and rename it when the block ends without error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open(mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
