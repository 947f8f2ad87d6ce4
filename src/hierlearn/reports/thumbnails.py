"""Thumbnails: small images inside a page, as data of at most a few kilobytes each."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from hierlearn.datasets.images.images import Images, open_image
from hierlearn.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

SIDE = 56  # pixels, at most
BYTES = 4096  # of the data of one thumbnail, at most
MOST = 400  # thumbnails of a page
QUALITIES = (70, 40, 15)


class Thumbnails:
    """Thumbnails of images that are found by name.

    Args:
        sources: the inputs of datasets; those that are no images are left out.
    """

    def __init__(self, sources: Iterable[object]) -> None:
        self.made: dict[str, str] = {}
        self._places = {
            name: (source, row)
            for source in sources
            if isinstance(source, Images)
            for row, name in enumerate(source.names)
        }

    def find(self, name: str | None) -> str | None:
        """Return an image as data; None where there is none, or there are too many already."""
        if name is None or name not in self._places:
            return None
        if name not in self.made and len(self.made) < MOST:
            source, row = self._places[name]
            try:
                self.made[name] = thumbnail(source.read(row))
            except DataError:  # gone or broken by now; its name is shown anyway
                self.made[name] = ""
        return self.made.get(name) or None


def thumbnail(content: bytes | NDArray[np.uint8]) -> str:
    """Return the data of a small image: PNG where that is small enough, else JPEG; or nothing.

    Args:
        content: the bytes of a file, or pixels; see ``open_image``.
    """
    image = open_image(content)
    image.thumbnail((SIDE, SIDE))
    for kind, quality in (("png", 0), *(("jpeg", one) for one in QUALITIES)):
        file = io.BytesIO()
        image.save(file, kind, quality=quality)
        data = f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
        if len(data) <= BYTES:
            return data
    return ""
