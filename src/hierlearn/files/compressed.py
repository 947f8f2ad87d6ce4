"""Content of a file that may be compressed, as its last ending says: .gz, .bz2 or .xz."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zlib
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO

from hierlearn.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from hierlearn.files.locations import Location

GROWTH = 100  # how many times larger than the file its content may be; text has about 10
FREE = 1 << 26  # bytes that the content may have in any case
KINDS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz"}


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
        """Return True."""
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
        """Close the file."""
        self._file.close()
        super().close()
