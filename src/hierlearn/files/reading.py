"""The one door for files that are read: regular files, in bounds, with errors of one sentence.

What is read may come from anyone. A file is opened only if it is a regular one (a pipe would wait
forever, a device never ends); its size is compared with a limit before memory is taken; what is
damaged raises an error that names the file.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import stat
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePath
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from hierlearn.errors import DataError, HierlearnError, place, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hierlearn.files.locations import Location


SMALL = 1 << 26  # bytes of a description such as config.json, 64 MB
LARGE = 1 << 33  # bytes of a text that is read whole, 8 GB
BLOCK = 1 << 20  # bytes that are read at a time
BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16
ROOM, ROOM_TIMES = 1 << 29, 200  # bytes that any table may take in memory, and times its file
DAMAGE = (  # what code raises that meets values of another type or size than it was written for
    *(KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError),
    *(OverflowError, RecursionError, MemoryError, AssertionError, EOFError),
    *(SyntaxError, TokenError),  # of NumPy, which reads the header of an .npy file as Python's
)
GROWTH = 100  # how many times larger than the file its content may be; text has about 10
FREE = 1 << 26  # bytes that the content may have in any case
KINDS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz"}
Key = TypeVar("Key")
Value = TypeVar("Value")
THREADS = 4  # files, or groups of rows, that are read at a time


@contextmanager
def guarded(
    where: Path | str,
    what: str,
    kind: type[HierlearnError] = DataError,
    remedy: str = "copy it again",
) -> Iterator[None]:
    """Turn whatever damaged content makes a block raise into one sentence that names the file.

    Args:
        where: the file or folder.
        what: what it is said to be: "is not the memory of this model".
        kind: the error to raise; those of the block that are of this kind pass.
        remedy: what to do about it.
    """
    try:
        yield
    except kind:
        raise
    except HierlearnError as error:
        if str(where) in str(error):  # it names the file, or one in the folder
            raise
        raise kind(f"{where} {what} ({error.message}); {remedy}") from error
    except DAMAGE as error:
        lines = str(error).split("\n")
        reason = lines[-1].strip() or lines[0].strip() or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"no {reason}"
        if len(reason) > 160:
            reason = f"{reason[:160]}..."
        raise kind(f"{where} {what} ({reason}); {remedy}") from error


@contextmanager
def needed(
    path: object, what: str, package: str, kind: type[HierlearnError] = DataError
) -> Iterator[None]:
    """Say how to install what a block imports.

    Args:
        path: the file.
        what: what the package is for, such as "reading Parquet".
        package: as pip calls it.
        kind: the error to raise.
    """
    try:
        yield
    except ImportError:
        raise kind(
            f"{path}: {what} needs {package}; install it with: pip install {package}"
        ) from None


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file for reading bytes.

    Raises:
        DataError: for a missing file, a folder, a pipe, a device or a name that no file can have.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
    except OSError as error:
        raise cannot_read(Path(path), error) from None
    except ValueError:  # a NUL
        raise DataError(f"{shown(str(path))} cannot be the name of a file") from None
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise DataError(f"{path} is a folder, not a file")
        raise DataError(f"{path} is not a regular file; copy its content into one")
    return os.fdopen(handle, "rb")


def room_of(size: int) -> int:
    """Return how many bytes the values of a table may take that has so many in its file."""
    return max(ROOM, ROOM_TIMES * size)


def is_file(path: Path | str) -> bool:
    """Whether there is such a file; no where no file can have the name, as it is too long."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path | str) -> bool:
    """Whether there is such a folder; not where no folder can have the name."""
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        return False


def check_regular(path: Path | str) -> Path:
    """Return the path of a regular file, for libraries that open it themselves."""
    open_regular(path).close()
    return Path(path)


def open_content(path: Path) -> BinaryIO:
    """Open a regular file for reading its content, decompressed where its ending says so."""
    file = open_regular(path)
    return io.BufferedReader(Decompressed(path, file)) if is_compressed(path) else file


def read_bytes(path: Path | str, most: int = LARGE) -> bytes:
    """Return the content of a regular file, decompressed where its ending says so.

    Args:
        path: the file.
        most: the most bytes that it may have.
    """
    path = Path(path)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise DataError(f"{path} has {size:,} bytes, and at most {most:,} are read")
        try:
            return Decompressed(path, file, most).read() if is_compressed(path) else file.read(size)
        except OSError as error:
            raise cannot_read(Path(path), error) from None
        except MemoryError:
            raise DataError(f"{path} has {size:,} bytes, which do not fit into memory") from None


def read_text(path: Path | str, most: int = LARGE) -> str:
    """Read UTF-8 text, also of a .gz, with its line ends as line feeds; refuse an empty file."""
    path = Path(path)
    raw = read_bytes(path, most)
    refuse_utf16(path, raw)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    if not text or text.isspace():
        raise DataError(f"{path} is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_json(
    path: Path | str,
    most: int = SMALL,
    kind: Callable[[str], HierlearnError] = DataError,
    **options: Any,
) -> Any:
    """Return the content of a JSON file.

    Args:
        path: the file.
        most: the most bytes that it may have.
        kind: the error to raise where it is no JSON.
        options: what ``json.loads`` takes.
    """
    try:
        text = read_text(path, most)
    except DataError as error:
        raise kind(error.message) from None
    return parse_json(text, path, kind, **options)


def parse_json(
    text: str,
    where: Path | str | None = None,
    kind: Callable[[str], HierlearnError] = DataError,
    **options: Any,
) -> Any:
    """Return the value of a JSON text; the arguments are those of ``read_json``."""
    at = "" if where is None else f"{where} "
    try:
        value = json.loads(text, **options)
    except RecursionError:
        raise kind(f"{at}is nested too deeply") from None
    except json.JSONDecodeError as error:
        line = "" if where is None else f"{place(where, error.lineno)}: "
        raise kind(f"{line}not JSON: {error.msg}") from None
    except HierlearnError:
        raise
    except (ValueError, MemoryError) as error:  # an integer of thousands of digits
        raise kind(f"{at}cannot be read as JSON ({error})") from None
    return value


FIRST = 1024  # bytes that tell an encoding


def refuse_utf16(path: Path, raw: bytes) -> None:
    """Raise on the bytes of a text in UTF-16, by its mark or its zeros."""
    first = raw[:FIRST]
    # Of ASCII in UTF-16 every second byte is zero; a zero here and there is damage.
    if raw.startswith(BYTE_ORDER_MARKS) or 4 * first.count(0) > len(first):
        raise DataError(
            f"{path} is not UTF-8: it looks like UTF-16; convert it, for example with: "
            f"iconv -f utf-16 -t utf-8, or save it as UTF-8"
        )


def text_lines(path: Path, offset: int = 0) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file with their ends as line feeds.

    Args:
        path: the file.
        offset: the byte of the content to begin at.
    """
    try:
        if not offset:
            with open_content(path) as raw:
                refuse_utf16(path, raw.read(FIRST))
        with open_content(path) as raw:
            skip(raw, offset)
            with io.TextIOWrapper(raw, encoding="utf-8" if offset else "utf-8-sig") as file:
                yield from file
    except UnicodeDecodeError as error:
        raise not_utf8(path) from error
    except OSError as error:
        raise cannot_read(path, error) from None


def skip(file: BinaryIO, count: int) -> None:
    """Go forward by some bytes; those of a compressed file must be read for that."""
    if file.seekable():
        file.seek(count)
        return
    while count and (read := len(file.read(min(count, BLOCK)))):
        count -= read


def not_utf8(path: Path) -> DataError:
    """Return the error of the first byte that is not UTF-8, reading one line at a time."""
    with open_content(path) as file:
        for number, line in enumerate(file, start=1):
            if number == 1 and line.startswith(b"\x1f\x8b"):
                return DataError(
                    f"{path} is packed by gzip; unpack it first, as gunzip does, or let its name "
                    f"end in .gz"
                )
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return DataError(
                    f"{place(path, number)}: byte 0x{line[error.start]:02x} is not UTF-8; "
                    f"convert the file, for example with: iconv -f latin1 -t utf-8"
                )
    return DataError(f"{path} changed while it was read")


def cannot_read(path: Path, error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: no such file")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path} is a folder, not a file")
    if error.errno == errno.ENXIO:  # a socket
        return DataError(f"{path} is not a regular file; copy its content into one")
    return DataError(f"{path}: {error.strerror or error}")


# ----------------------------------------------------------------------
# Content of a file that may be compressed, as its last ending says: .gz, .bz2 or .xz.


def is_compressed(path: Location | PurePath) -> bool:
    """Whether a file is compressed, by its ending."""
    return path.suffix.lower() in KINDS


def plain_ending(path: Location) -> str:
    """Return the ending that tells the format, without that of a compression: .csv of a.CSV.gz."""
    ending = path.suffix.lower()
    return PurePath(path.stem).suffix.lower() if ending in KINDS else ending


def allowed(size: int) -> int:
    """Return how many bytes, or cells, may come out of a file of so many bytes."""
    return FREE + GROWTH * size


class Decompressed(io.RawIOBase):
    """The content of a compressed file, to be read once from its beginning.

    Args:
        path: the file, for errors.
        file: the file, opened; closed with this one.
        most: the most bytes that the content may have.

    Raises:
        DataError: where it is damaged, cut short, or grows beyond all measure.
    """

    def __init__(self, path: Path, file: BinaryIO, most: int | None = None) -> None:
        self._path, self._file = path, file
        limit = allowed(os.fstat(file.fileno()).st_size)
        self._most = limit if most is None else min(most, limit)
        self._kind = KINDS[path.suffix.lower()]
        opened = {"gzip": gzip.GzipFile, "bzip2": bz2.BZ2File, "xz": lzma.LZMAFile}[self._kind]
        source: Any = {"fileobj": file} if self._kind == "gzip" else {"filename": file}
        self._content: Any = opened(**source, mode="rb")
        self._total = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes."""
        try:
            block = self._content.read1(len(buffer))
        except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the disk
                raise
            raise DataError(
                f"{self._path} is not a whole {self._kind} file: {error}; download it again, or "
                f"rename it if it is not compressed"
            ) from None
        self._total += len(block)
        if self._total > self._most:
            raise DataError(
                f"{self._path} has more than {self._most:,} bytes once decompressed; is it the "
                f"right file?"
            )
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        self._file.close()
        super().close()


# ----------------------------------------------------------------------
# Read ahead: threads read what comes next while the caller works on what was read.


def read_ahead(read: Callable[[Key], Value], keys: Iterable[Key], most: int = 1) -> Iterator[Value]:
    """Yield ``read(key)`` of every key in order, the next of them read in threads meanwhile.

    Args:
        read: called in a thread.
        keys: what to read.
        most: how many are read ahead, and at a time.
    """
    with ThreadPoolExecutor(most, thread_name_prefix="hierlearn-read") as pool:
        pending: deque[Future[Value]] = deque()
        try:
            for key in keys:
                pending.append(pool.submit(read, key))
                if len(pending) > most:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for one in pending:
                one.cancel()
