"""Reading text and delimited rows, writing files atomically; errors name the file and line."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.files.reading import read_text
from hierlearn.files.rows import (
    Start,
    announced_delimiter,
    read_rows,
    refuse_duplicates,
    stream_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "Start",
    "WriteError",
    "announced_delimiter",
    "atomic_write",
    "cannot_write",
    "check_new",
    "check_writable",
    "read_rows",
    "read_text",
    "refuse_duplicates",
    "stream_rows",
    "sync_folder",
]


class WriteError(HierlearnError, OSError):
    """A file cannot be written at its path."""


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
        raise WriteError(f"{path} exists; pass force=True to replace it")
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
