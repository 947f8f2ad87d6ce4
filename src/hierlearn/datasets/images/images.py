"""Images: N images that stay where they are, in files, tar shards, Parquet files or an array.

An image is read when it is needed, as the bytes of its file, then decoded to grey or RGB:

    grey, 1 bit          one channel
    16 bit               one channel, scaled to 8 bits
    palette, RGBA        RGB over white where they are transparent
    CMYK, YCbCr, LAB     RGB
    animations           the first frame
    EXIF                 turned upright

Sizes keep the aspect: "pad" fits the image in and fills the rest with white, "crop" fills the
square and cuts what is left over, as the evaluation of timm does, "stretch" does neither. Files are
opened below their folder only: names cannot lead out of it.
"""

from __future__ import annotations

import io
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args

import numpy as np

from hierlearn.errors import DataError, HierlearnError, shown, unknown_name
from hierlearn.files.reading import cannot_read, open_regular, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Kind


MOST_BYTES = 1 << 28  # of the file of one image, 256 MB
ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
MOST_PIXELS = 1 << 27  # of one image, 134 million: 11,585 x 11,585
Fit = Literal["pad", "crop", "stretch"]
FITS: tuple[Fit, ...] = get_args(Fit)
GREY = ("1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N")
WHITE = 255


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


# ---------------------------------------- decoding


def find_pillow() -> Any:
    """Import Pillow, or say how to install it."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise HierlearnError(
            f"images are read with Pillow ({error}); install it with: pip install pillow"
        ) from None
    return PIL


def open_image(content: bytes | NDArray[np.uint8], most: int = MOST_PIXELS) -> Any:
    """Return an upright image of Pillow in mode L or RGB.

    Args:
        content: the bytes of a file, or (C, H, W) pixels.
        most: the most pixels that it may have.

    Raises:
        DataError: if it is no image, is damaged, or is too large.
    """
    pillow = find_pillow()
    if not isinstance(content, bytes):
        values = content[0] if len(content) == 1 else np.moveaxis(content, 0, -1)
        return pillow.Image.fromarray(np.ascontiguousarray(values))
    if not content:
        raise DataError("the file is empty")
    try:
        image = pillow.Image.open(io.BytesIO(content))
        width, height = image.size
        if width * height > most:
            raise DataError(f"it has more than {most:,} pixels, {width:,} x {height:,}")
        return upright(pillow, image)
    except DataError:
        raise
    except pillow.Image.DecompressionBombError:
        raise DataError(f"it has more than {most:,} pixels") from None
    except pillow.UnidentifiedImageError:
        raise DataError(f"it is no image; it begins with {content[:12]!r}") from None
    except Exception as error:  # decoders raise what they like on damaged files
        reason = str(error).split("\n")[0][:160] or type(error).__name__
        raise DataError(f"it is damaged: {reason}") from None


def upright(pillow: Any, image: Any) -> Any:
    """Return the first frame of an image in mode L or RGB, turned as its EXIF says."""
    image.seek(0)
    image.load()
    image = pillow.ImageOps.exif_transpose(image)
    if image.mode in ("L", "RGB") and "transparency" not in image.info:
        return image
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return as_8_bits(pillow, image)
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        over = image.convert("RGBA")
        white = pillow.Image.new("RGBA", over.size, (WHITE,) * 4)
        found = pillow.Image.alpha_composite(white, over)
        return found.convert("L" if image.mode in GREY else "RGB")
    return image.convert("L" if image.mode in GREY else "RGB")


def as_8_bits(pillow: Any, image: Any) -> Any:
    """Return an image of 16 or 32 bits with 8: integers as parts of 65,535, others as they are."""
    values = np.asarray(image)
    if values.dtype.kind in "iu":
        values = np.clip(values, 0, 65_535) // 257 if values.max(initial=0) > WHITE else values
    else:
        values = np.nan_to_num(values)
        values = values * WHITE if values.max(initial=0) <= 1 else values
    return pillow.Image.fromarray(np.clip(values, 0, WHITE).astype(np.uint8))


def is_grey(image: Any) -> bool:
    """Whether an image has no color: one channel, or three that are equal."""
    if image.mode == "L":
        return True
    red, green, blue = (channel.tobytes() for channel in image.split())
    return bool(red == green == blue)


def fit_to(image: Any, size: int, fit: Fit = "pad") -> Any:
    """Return an image of ``size`` x ``size`` pixels."""
    if fit not in FITS:
        raise HierlearnError(unknown_name("fit of images", fit, FITS))
    pillow = find_pillow()
    method = pillow.Image.Resampling.BICUBIC
    if image.size == (size, size):
        return image
    if fit == "stretch":
        return image.resize((size, size), method)
    if fit == "crop":
        return pillow.ImageOps.fit(image, (size, size), method)
    white = WHITE if image.mode == "L" else (WHITE,) * 3
    return pillow.ImageOps.pad(image, (size, size), method, color=white)


def as_channels(image: Any, channels: int) -> NDArray[np.uint8]:
    """Return the (C, H, W) pixels of an image."""
    values = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return values[None] if channels == 1 else np.ascontiguousarray(np.moveaxis(values, -1, 0))


@contextmanager
def in_threads(count: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Yield threads that decode images; Pillow's warnings about odd files are not shown."""
    with warnings.catch_warnings(), ThreadPoolExecutor(count or os.cpu_count() or 1) as pool:
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield pool


def find_broken(images: Images) -> dict[int, str]:
    """Return the rows of images that cannot be decoded, and why; every image is decoded."""

    def reason(row: int) -> str | None:
        try:
            open_image(images.read(row))
        except DataError as error:
            return str(error)
        return None

    with in_threads() as pool:
        found = pool.map(reason, range(len(images)))
        return {row: why for row, why in enumerate(found) if why is not None}
