"""Standard input and output in place of files, both called ``-``.

What comes in is held in a temporary file, since a table is read more than once; what goes out is
written as it is made.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.errors import DataError
from hierlearn.files.writing import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from hierlearn.files.locations import Location


STANDARD = "-"
MOST = 1 << 33  # bytes that are taken in, 8 GB
BLOCK = 1 << 20  # bytes that are read at a time


def is_standard(source: Location | str) -> bool:
    """Whether a source is standard input, or an output standard output."""
    return isinstance(source, (str, Path)) and str(source) == STANDARD


class StandardInput(type(Path())):  # type: ignore[misc]
    """What came in, in a file that errors call standard input.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        if sys.version_info >= (3, 12):
            super().__init__(path)
        self._file = path

    def __str__(self) -> str:
        return "standard input"

    def __fspath__(self) -> str:
        return self._file

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self)

    @property
    def suffix(self) -> str:
        """The ending that tells the format."""
        return Path(self._file).suffix


_held: list[tuple[Any, StandardInput]] = []  # what came in, and from which stream


def standard_input() -> StandardInput:
    """Return what comes in on standard input, which is read to its end once.

    Its first character tells the format: JSON lines begin with ``{``; all else is CSV, or TSV.

    Raises:
        DataError: where nothing comes in, or more than the limit.
    """
    if not _held or _held[0][0] is not sys.stdin:
        _held[:] = [(sys.stdin, take_in(sys.stdin.buffer))]
    return _held[0][1]


def take_in(source: BinaryIO) -> StandardInput:
    """Copy a stream into a temporary file, which is removed when the process ends."""
    first = source.read(BLOCK)
    if not first.strip():
        raise DataError("standard input is empty; pipe a table into the command")
    ending = ".jsonl" if first.lstrip()[:1] == b"{" else ".csv"
    handle, name = tempfile.mkstemp(suffix=ending, prefix="hierlearn-")
    atexit.register(forget, name, os.getpid())
    total = 0
    with os.fdopen(handle, "wb") as file:
        while first:
            total += len(first)
            if total > MOST:
                raise DataError(
                    f"standard input has more than {MOST:,} bytes; write it into a file and name "
                    f"that"
                )
            file.write(first)
            first = source.read(BLOCK)
    return StandardInput(name)


@contextmanager
def standard_output() -> Iterator[Callable[[str], object]]:
    """Yield what writes text to standard output, as UTF-8; where nobody reads it, end quietly."""
    sys.stdout.flush()
    output = sys.stdout.buffer
    try:
        yield lambda text: output.write(text.encode())
        output.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        raise SystemExit(1) from None


def forget(name: str, process: int) -> None:
    """Remove a temporary file, unless this is a child of the process that made it."""
    if os.getpid() == process:
        with suppress(OSError):
            remove(Path(name))
