"""Which classes a curriculum selected when: a map of classes by epochs, and those least selected.

The map is an image of one pixel per class (or group of neighbors) and epoch. Its pixels differ in
opacity, so that it reads on a light page and on a dark one.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.lab.pages.sections import between
from hierlearn.reports.markup import safe
from hierlearn.reports.plots import WIDTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.hierarchy import Hierarchy

MOST_ROWS = 400  # of the map; more classes share a row with their neighbors
MOST_COLUMNS = 400
LEFT, RIGHT, TOP = 34, 54, 6  # as in the plot above it
LEAST = 8  # classes that are named
COLOR = (37, 99, 171)


def selection_map(shares: NDArray[np.uint8], hierarchy: Hierarchy) -> str:
    """Return the map as SVG.

    Args:
        shares: (epochs, C) percentage of the batches in which a class was selected.
        hierarchy: the taxonomy, for its levels.
    """
    epochs = len(shares)
    blocks = [
        gather(shares.T[level], rows_of(level, len(hierarchy))) for level in hierarchy.level_slices
    ]
    pixels = np.concatenate(blocks)
    if epochs > MOST_COLUMNS:
        pixels = gather(pixels.T, MOST_COLUMNS).T
    height = max(90, min(300, 3 * len(pixels)))
    foot = TOP + height
    inner = WIDTH - LEFT - RIGHT
    lines = [
        f'<svg class="selection" viewBox="0 0 {WIDTH} {foot + 32}" role="img" '
        f'aria-label="classes selected by epoch; the fuller, the more batches">',
        f'<image x="{LEFT}" y="{TOP}" width="{inner}" height="{height}" '
        f'preserveAspectRatio="none" href="{data_uri(pixels)}"/>',
        f'<rect x="{LEFT}" y="{TOP}" width="{inner}" height="{height}" class="frame"/>',
    ]
    begin, free = 0, 0.0
    for number, block in enumerate(blocks, start=1):
        y = TOP + height * begin / len(pixels)
        end = TOP + height * (begin + len(block)) / len(pixels)
        if begin:
            lines.append(f'<path d="M{LEFT} {y:.1f}h{inner}" class="border"/>')
        middle = max((y + end) / 2 + 4, free)
        if middle <= foot + 4:
            lines.append(
                f'<text x="{WIDTH - RIGHT + 6}" y="{middle:.1f}" class="name">level {number}</text>'
            )
            free = middle + 12
        begin += len(block)
    lines += [
        f'<text x="{LEFT}" y="{foot + 15}" class="tick" style="text-anchor:start">1</text>',
        f'<text x="{WIDTH - RIGHT}" y="{foot + 15}" class="tick" style="text-anchor:end">'
        f"{epochs}</text>",
        f'<text x="{LEFT + inner / 2}" y="{foot + 29}" class="tick">epoch</text>',
        "</svg>",
    ]
    return "\n".join(lines)


def rows_of(level: slice, classes: int) -> int:
    """Return how many rows of the map a level gets."""
    size = int(level.stop) - int(level.start)
    return size if classes <= MOST_ROWS else max(1, round(size * MOST_ROWS / classes))


def gather(values: NDArray[np.uint8], rows: int) -> NDArray[np.uint8]:
    """Return at most ``rows`` rows, each the mean of neighbors."""
    if len(values) <= rows:
        return values
    starts = np.arange(rows) * len(values) // rows
    sums = np.add.reduceat(values.astype(np.float64), starts, axis=0)
    counts = np.diff([*starts, len(values)])[:, None]
    means: NDArray[np.uint8] = np.rint(sums / counts).astype(np.uint8)
    return means


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """Return an image of percentages, as PNG in a data URI."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return (height, width) percentages as a PNG: one color, 0 transparent, 100 opaque."""
    height, width = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    palette = bytes(COLOR) * 101
    alpha = bytes(round(255 * share / 100) for share in range(101))
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # each row begins with its filter, none
    rows[:, 1:] = np.minimum(pixels, 100)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            chunk(b"PLTE", palette),
            chunk(b"tRNS", alpha),
            chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            chunk(b"IEND", b""),
        )
    )


def least_selected(shares: NDArray[np.uint8], hierarchy: Hierarchy) -> str:
    """Return a table of the classes that were selected least; a sentence where all always were."""
    means = shares.mean(axis=0)
    missed = np.flatnonzero(means < 100)
    if not len(missed):
        return "<p>Every class was selected in every batch.</p>"
    chosen = missed[np.argsort(means[missed], kind="stable")[:LEAST]]
    rows = []
    for number in chosen.tolist():
        seen = np.flatnonzero(shares[:, number])
        span = between(int(seen[0]) + 1, int(seen[-1]) + 1) if len(seen) else "never"
        title = hierarchy.title(number)
        shown = "" if title is None else f' <span class="title">{safe(title)}</span>'
        rows.append(
            f'<tr><th scope="row">{safe(hierarchy.names[number])}{shown}</th>'
            f"<td>{int(hierarchy.levels[number])}</td><td>{means[number]:.1f}</td>"
            f"<td>{span}</td></tr>"
        )
    return (
        f"<div><p>{len(missed):,} of {shares.shape[1]:,} classes were left out at times; "
        f'the {len(chosen)} least selected:</p><div class="wide"><table class="least"><thead>'
        f"<tr><th>class</th><th>level</th><th>% of batches</th><th>epochs</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div></div>"
    )
