"""Reading a file that may be compressed by gzip, as its ending .gz says."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING, BinaryIO

from hierlearn.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 1 << 20
GROWTH = 100  # how many times larger than the file its content may be; text has about 10
FREE = 1 << 26  # bytes that the content may have in any case


def decompress(path: Path, file: BinaryIO, size: int, most: int) -> bytes:
    """Return the content of a gzip file.

    Args:
        path: the file, for errors.
        file: the file, opened.
        size: its bytes.
        most: the most bytes that its content may have.

    Raises:
        DataError: where it is no gzip file, is cut short, or grows beyond all measure.
    """
    blocks, total = [], 0
    most = min(most, FREE + GROWTH * size)
    try:
        with gzip.GzipFile(fileobj=file) as content:
            while block := content.read(BLOCK):
                total += len(block)
                if total > most:
                    raise DataError(
                        f"{path} has more than {most:,} bytes once decompressed; is it the right "
                        f"file?"
                    )
                blocks.append(block)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} is not a whole gzip file: {error}; download it again, or rename it if it is "
            f"not compressed"
        ) from None
    return b"".join(blocks)
