"""Images: N images that stay where they are, in files, tar shards, Parquet files or an array.

An image is read when it is needed, as the bytes of its file; ``decode_image`` turns these into
pixels. Files are opened below their folder only: names cannot lead out of it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from hierlearn.errors import DataError, shown
from hierlearn.files.reading import cannot_read, open_regular, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Kind

MOST_BYTES = 1 << 28  # of the file of one image, 256 MB
ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


class Reference(Protocol):
    """Where an image is."""

    @property
    def name(self) -> str:
        """What to call it."""

    def read(self) -> bytes | NDArray[np.uint8]:
        """Return the bytes of its file, or its (C, H, W) pixels."""


@dataclass(frozen=True)
class ImageFile:
    """A file below a folder.

    Attributes:
        root: the folder.
        name: the path below it, with ``/``.
    """

    root: Path
    name: str

    def read(self) -> bytes:
        """Return the bytes of the file."""
        return read_bytes_below(self.root, self.name)


@dataclass(frozen=True)
class TarMember:
    """A member of a tar file, read by its place; nothing is unpacked.

    Attributes:
        path: the tar file.
        name: of the member.
        offset, size: the bytes of its content.
    """

    path: Path
    name: str
    offset: int
    size: int

    def read(self) -> bytes:
        """Return the bytes of the member."""
        if self.size > MOST_BYTES:
            raise DataError(
                f"{self.name} has {self.size:,} bytes, and at most {MOST_BYTES:,} are read"
            )
        with open_regular(self.path) as file:
            try:
                file.seek(self.offset)
                found = file.read(self.size)
            except OSError as error:
                raise cannot_read(self.path, error) from None
        if len(found) < self.size:
            raise DataError(f"{self.path} ends before its member {self.name}; copy it again")
        return found


@dataclass(frozen=True, eq=False)
class Pixels:
    """An image in memory.

    Attributes:
        name: what to call it.
        values: (C, H, W) bytes.
    """

    name: str
    values: NDArray[np.uint8]

    def read(self) -> NDArray[np.uint8]:
        """Return the pixels."""
        return self.values


class Images:
    """N images, read when they are needed.

    Args:
        references: where each of them is.
    """

    kind: ClassVar[Kind] = "images"

    def __init__(self, references: Iterable[Any]) -> None:
        self.references: list[Any] = list(references)

    @classmethod
    def from_array(cls, images: Any, names: Sequence[str] | None = None) -> Images:
        """Return images that are in memory.

        Args:
            images: (N, H, W) grey, (N, C, H, W) or (N, H, W, C), C = 1 or 3, bytes.
            names: what to call them; by default their numbers.
        """
        array = np.asarray(images)
        if array.dtype != np.uint8 or array.ndim not in (3, 4):
            raise DataError(
                f"images are (N, H, W), (N, C, H, W) or (N, H, W, C) of uint8, not {array.shape} "
                f"of {array.dtype}"
            )
        if array.ndim == 3:
            array = array[:, None]
        elif array.shape[1] not in (1, 3):
            array = array.transpose(0, 3, 1, 2)
        if array.shape[1] not in (1, 3):
            raise DataError(f"images have 1 or 3 channels, not those of {np.shape(images)}")
        called = names if names is not None else [str(number) for number in range(len(array))]
        return cls(Pixels(str(name), one) for name, one in zip(called, array, strict=True))

    @classmethod
    def from_files(cls, paths: Iterable[Path | str], root: Path | str = ".") -> Images:
        """Return the images of files, given by their paths below a folder."""
        return cls(ImageFile(Path(root), Path(one).as_posix()) for one in paths)

    def __len__(self) -> int:
        return len(self.references)

    def __repr__(self) -> str:
        return f"Images({len(self):,} images)"

    @property
    def shape(self) -> tuple[int]:
        """(N,)."""
        return (len(self.references),)

    def __getitem__(self, rows: Any) -> Images:
        """Return the images of a slice, of row numbers, or of a boolean mask."""
        if isinstance(rows, slice):
            return Images(self.references[rows])
        picked = np.arange(len(self))[rows]
        return Images(self.references[row] for row in np.atleast_1d(picked))

    @cached_property
    def names(self) -> list[str]:
        """What to call each image: its path."""
        return [one.name for one in self.references]

    def read(self, row: int) -> bytes | NDArray[np.uint8]:
        """Return the bytes of the file of an image, or its pixels."""
        found: bytes | NDArray[np.uint8] = self.references[row].read()
        return found

    def digests(self) -> Iterator[bytes]:
        """Yield 16 bytes for each image, equal for equal content wherever it is stored."""
        for row in range(len(self)):
            found = self.read(row)
            if isinstance(found, bytes):
                yield blake2b(found, digest_size=16).digest()
            else:
                head = f"pixels {found.shape}".encode()
                yield blake2b(head + found.tobytes(), digest_size=16).digest()

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of a dataset's digest."""
        yield b"images"
        yield from self.digests()


def read_bytes_below(root: Path, name: str) -> bytes:
    """Return the bytes of a file below a folder; raise on names and links that lead out of it."""
    path = root / name
    check_below(root, name)
    try:
        inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
    except (OSError, ValueError):
        raise DataError(f"{shown(name)} cannot be the name of a file") from None
    if not inside:
        raise DataError(f"{path} is a link that leads out of {root}; copy the file itself")
    if path.suffix.lower() == ".gz":
        raise DataError(f"{path} is compressed; images are read as they are")
    return read_bytes(path, MOST_BYTES)


def check_below(root: Path, name: str) -> None:
    """Raise on a name that is absolute or climbs out of a folder."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts:
        raise DataError(f"{shown(name)} is not a path below {root}; move the images there")
