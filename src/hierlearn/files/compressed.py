"""Reading a file that may be compressed by gzip, as its ending .gz says."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

from hierlearn.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = 1 << 32  # bytes that a file may have once it is decompressed
BLOCK = 1 << 20


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed where its name ends in .gz.

    Raises:
        OSError: where the file cannot be opened.
        DataError: where it is no gzip file, is cut short, or grows beyond 4 GiB.
    """
    if path.suffix.lower() != ".gz":
        return path.read_bytes()
    blocks, total = [], 0
    try:
        with gzip.open(path) as file:
            while block := file.read(BLOCK):
                total += len(block)
                if total > LARGEST:
                    raise DataError(
                        f"{path} has more than {LARGEST:,} bytes once decompressed; "
                        f"is it the right file?"
                    )
                blocks.append(block)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} is not a whole gzip file: {error}; download it again, or rename it if it is "
            f"not compressed"
        ) from None
    return b"".join(blocks)
