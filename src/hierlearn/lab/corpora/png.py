"""Read PNG images in black and white, without an image library."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
LARGEST_SIDE = 4096  # pixels
BILEVEL = (1, 0, 0, 0, 0)  # bits per pixel, gray, and the only methods there are; not interlaced


def read_bilevel_png(content: bytes, name: str) -> NDArray[np.bool_]:
    """Return an image of one bit per pixel, (height, width), True where it is black.

    Args:
        content: the bytes of the file.
        name: what the messages call it.
    """
    if not content.startswith(SIGNATURE):
        raise DataError(f"{name} is no PNG image")
    header, data = b"", b""
    begin = len(SIGNATURE)
    while begin + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, begin)
        chunk = content[begin + 8 : begin + 8 + length]
        if kind == b"IHDR":
            header = chunk
        elif kind == b"IDAT":
            data += chunk
        begin += 12 + length  # a checksum follows each chunk
    if len(header) != 13:
        raise DataError(f"{name} is a PNG image without a header")
    width, height, *form = struct.unpack(">II5B", header)
    if tuple(form) != BILEVEL or not 0 < width <= LARGEST_SIDE or not 0 < height <= LARGEST_SIDE:
        raise DataError(
            f"{name} is a PNG image of {width} x {height} pixels in form {tuple(form)}; only black "
            f"and white {BILEVEL} up to {LARGEST_SIDE} pixels can be read"
        )
    stride = (width + 7) // 8
    expected = height * (stride + 1)
    try:
        raw = zlib.decompressobj().decompress(data, expected)
    except zlib.error as error:
        raise DataError(f"{name} is a damaged PNG image ({error})") from None
    if len(raw) != expected:
        raise DataError(f"{name} is a PNG image of {len(raw)} bytes, expected {expected}")
    lines = np.frombuffer(raw, dtype=np.uint8).reshape(height, stride + 1)
    pixels = np.unpackbits(_unfiltered(lines, name), axis=1)[:, :width]
    black: NDArray[np.bool_] = pixels == 0
    return black


def _unfiltered(lines: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """Undo the filter that the first byte of each line names."""
    found = np.zeros((len(lines), lines.shape[1] - 1), dtype=np.uint8)
    above = [0] * found.shape[1]
    for row, (kind, *line) in enumerate(lines.tolist()):
        if kind > 4:
            raise DataError(f"{name} is a PNG image with the unknown filter {kind}")
        if kind:
            left = corner = 0
            for place, up in enumerate(above):
                guess = (0, left, up, (left + up) // 2, _paeth(left, up, corner))[kind]
                line[place] = left = (line[place] + guess) % 256
                corner = up
        found[row] = above = line
    return found


def _paeth(left: int, up: int, corner: int) -> int:
    """Return the one of three neighbors that is nearest to left + up - corner."""
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))
