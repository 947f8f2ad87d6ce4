"""Images in black and white, against an image library."""

import io
import struct
import zlib

import numpy as np
import pytest

from hierlearn.errors import DataError
from hierlearn.lab.corpora.png import read_bilevel_png


def chunk(kind, content):
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def png(lines, width, *, form=(1, 0, 0, 0, 0), height=None, parts=1):
    """Return a PNG image of filtered lines, each with the filter's number in front."""
    header = struct.pack(">II5B", width, len(lines) if height is None else height, *form)
    data = zlib.compress(b"".join(bytes(line) for line in lines))
    cut = -(-len(data) // parts)
    chunks = [chunk(b"IDAT", data[begin : begin + cut]) for begin in range(0, len(data), cut)]
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(1, 1), (8, 3), (105, 105), (13, 7)])
def test_an_image_library_reads_the_same(size):
    image = pytest.importorskip("PIL.Image")
    width, height = size
    pixels = np.random.default_rng(0).random((height, width)) < 0.5
    file = io.BytesIO()
    image.fromarray(~pixels).convert("1").save(file, "PNG")
    assert np.array_equal(read_bilevel_png(file.getvalue(), "x"), pixels)


@pytest.mark.parametrize("parts", [1, 3])
def test_every_filter_is_undone_as_an_image_library_does(parts):
    image = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(1)
    lines = [[kind, *random.integers(0, 256, 4)] for kind in (0, 1, 2, 3, 4, 4, 3, 2, 1, 0)]
    content = png(lines, 29, parts=parts)
    expected = ~np.asarray(image.open(io.BytesIO(content)))
    assert np.array_equal(read_bilevel_png(content, "x"), expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GIF89a", "x.png is no PNG image"),
        (b"\x89PNG\r\n\x1a\n", "x.png is a PNG image without a header"),
        (png([[0, 1]], 8, form=(8, 2, 0, 0, 0)), r"8 x 1 pixels in form \(8, 2, 0, 0, 0\); only"),
        (png([[0, 1]], 8, form=(1, 0, 0, 0, 1)), "only black and white"),
        (png([[0, 1]], 100_000), "of 100000 x 1 pixels"),
        (png([[0, 1]], 8, height=2), "of 2 bytes, expected 4"),
        (png([[5, 1]], 8), "with the unknown filter 5"),
        (png([[0, 1]], 8).replace(b"IDAT\x78", b"IDAT\x00"), "is a damaged PNG image"),
    ],
)
def test_what_cannot_be_read(content, message):
    with pytest.raises(DataError, match=message):
        read_bilevel_png(content, "x.png")
