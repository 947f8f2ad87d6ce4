"""Decode an image: from the bytes of a file, or from pixels, to grey or RGB of one size.

    grey, 1 bit          one channel
    16 bit               one channel, scaled to 8 bits
    palette, RGBA        RGB over white where they are transparent
    CMYK, YCbCr, LAB     RGB
    animations           the first frame
    EXIF                 turned upright

Sizes keep the aspect: "pad" fits the image in and fills the rest with white, "crop" fills the
square and cuts what is left over, as the evaluation of timm does, "stretch" does neither.
"""

from __future__ import annotations

import io
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from hierlearn.errors import DataError, HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hierlearn.datasets.images import Images

MOST_PIXELS = 1 << 27  # of one image, 134 million: 11,585 x 11,585
Fit = Literal["pad", "crop", "stretch"]
FITS: tuple[Fit, ...] = get_args(Fit)
GREY = ("1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N")
WHITE = 255


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
