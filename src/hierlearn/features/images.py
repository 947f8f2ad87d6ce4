"""Images: decoded and resized to (N, C, S, S) bytes, C = 1 where all training images are grey.

Files are decoded in threads: Pillow computes outside of Python's lock. Resized images are held in
memory; those of a large set are written once into the cache folder, named by their content, and
mapped from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hierlearn.backbones import find_backbone
from hierlearn.datasets.images import (
    FITS,
    ImageFile,
    Images,
    Pixels,
    as_channels,
    fit_to,
    in_threads,
    open_image,
)
from hierlearn.errors import DataError, HierlearnError, plural, unknown_name
from hierlearn.features.preprocessor import Preprocessor, integer_option, stored
from hierlearn.files.locations import cache_dir
from hierlearn.files.writing import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray
    from typing_extensions import Self

    from hierlearn.datasets.dataset import Kind
    from hierlearn.datasets.images import Fit
    from hierlearn.features.preprocessor import Produced

    Bytes = NDArray[np.uint8]

SIZE = 64  # pixels, for networks that read any size
IN_MEMORY = 1 << 31  # bytes of resized images; more are mapped from a file
CHUNK = 1024  # images that are decoded before they are copied
SHOWN = 10  # broken images that a message names


class ImagePreprocessor(Preprocessor[Any, "NDArray[np.uint8]"]):
    """Images as (N, C, S, S) bytes.

    Args:
        source: ``timm:NAME``, whose size and channels are the default.
        image_size: S; by default what the backbone reads, else 64.
        fit: how other shapes become squares: "pad" with white, "crop" to the middle, or "stretch";
            by default "crop" for a backbone and "pad" without one.
    """

    name: ClassVar[str] = "images"
    reads: ClassVar[Kind] = "images"
    produces: ClassVar[Produced] = "images"

    def __init__(
        self, source: str | None = None, *, image_size: int | None = None, fit: Fit | None = None
    ) -> None:
        self.source = source
        self.image_size = image_size
        if image_size is not None:
            integer_option("image_size", image_size, 8, 2048)
        if fit is not None and fit not in FITS:
            raise HierlearnError(unknown_name("fit of images", fit, FITS))
        self.fit_as: Fit = fit or ("pad" if source is None else "crop")
        self._shape: tuple[int, int, int] | None = None
        self._held: tuple[Any, Bytes] | None = None  # the training rows, until they are asked for

    @property
    def columns(self) -> int:
        """C S S."""
        return int(np.prod(self.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, S, S)."""
        return self._learned(self._shape)

    def fit(self, inputs: Any) -> Self:
        """Find out whether the images have color; decode them on the way."""
        size, channels = self.image_size or SIZE, None
        if self.source is not None:
            family, path = find_backbone(self.source)
            channels, *own = family.describe(path)["shape"]
            size = self.image_size or own[0]
        if channels is None:
            found = resized(as_images(inputs), Target(3, size, self.fit_as))
            blocks = (found[begin : begin + CHUNK] for begin in range(0, len(found), CHUNK))
            grey = all((block[:, :1] == block[:, 1:]).all() for block in blocks)
            channels = 1 if grey else 3
            self._held = (inputs, found[:, :channels])
        self._shape = (channels, size, size)
        return self

    def transform(self, inputs: Any) -> NDArray[np.uint8]:
        """Return (N, C, S, S) bytes."""
        channels, size, _ = self.shape
        held, self._held = self._held, None
        if held is not None and held[0] is inputs:
            return held[1]
        return resized(as_images(inputs), Target(channels, size, self.fit_as))

    def summary(self) -> str:
        """Return the size of the images, for the plan of a training."""
        channels, size, _ = self.shape
        return f"{'grey' if channels == 1 else 'color'} images of {size} x {size} pixels"

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the settings and the shape."""
        settings = {
            "name": self.name,
            "source": self.source,
            "image_size": self.image_size,
            "fit": self.fit_as,
            "shape": list(self.shape),
        }
        return settings, {}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore the step."""
        del arrays
        new = cls(
            stored(settings, "source"),
            image_size=stored(settings, "image_size"),
            fit=stored(settings, "fit"),
        )
        channels, height, width = stored(settings, "shape")
        if channels not in (1, 3) or height != width:
            raise DataError("the stored preprocessor is damaged: images are (1 or 3, S, S)")
        integer_option("image_size", height, 1, 4096)
        new._shape = (channels, height, width)
        return new


@dataclass(frozen=True)
class Target:
    """What images become.

    Attributes:
        channels: 1, or 3.
        size: S.
        fit: how other shapes become squares.
    """

    channels: int
    size: int
    fit: Fit

    def of(self, content: bytes | Bytes) -> Bytes:
        """Return the (C, S, S) pixels of the bytes of a file, or of pixels."""
        shape = (self.channels, self.size, self.size)
        if not isinstance(content, bytes) and content.shape in (shape, (1, *shape[1:])):
            return np.broadcast_to(content, shape)  # without Pillow
        return as_channels(fit_to(open_image(content), self.size, self.fit), self.channels)


def as_images(inputs: Any) -> Images:
    """Return inputs as Images: an array of bytes, or a list of paths, too."""
    if isinstance(inputs, Images):
        return inputs
    if hasattr(inputs, "dtype") and inputs.dtype == np.uint8:
        return Images.from_array(inputs)
    if isinstance(inputs, (str, Path)) or not all(isinstance(one, (str, Path)) for one in inputs):
        raise DataError(
            "images are given as hierlearn.datasets.Images, as uint8 pixels, or as a list of paths"
        )
    return Images(ImageFile(Path(one).parent, Path(one).name) for one in inputs)


def resized(images: Images, target: Target) -> Bytes:
    """Return (N, C, S, S) images, in memory or mapped from the cache folder.

    Args:
        images: where they are.
        target: what they become.

    Raises:
        DataError: naming images that cannot be read.
    """
    shape = (len(images), target.channels, target.size, target.size)
    if int(np.prod(shape)) <= IN_MEMORY:
        found, begin = np.empty(shape, dtype=np.uint8), 0
        for block in decoded_blocks(images, target):
            found[begin : begin + len(block)] = block
            begin += len(block)
        return found
    name = blake2b(f"{target}".encode(), digest_size=16)  # of their content
    for digest in images.digests():
        name.update(digest)
    path = cache_dir() / "images" / f"{name.hexdigest()}.npy"
    if not path.exists():
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        with atomic_write(path, "wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            for block in decoded_blocks(images, target):
                file.write(block.tobytes())
    # Copy on write: torch does not take arrays that are read-only.
    return np.lib.format.open_memmap(path, mode="c")


def decoded_blocks(images: Images, target: Target) -> Iterator[Bytes]:
    """Yield the pixels of images, block by block; raise in the end, naming all that are broken."""

    def decode(row: int) -> Bytes | str:
        try:
            return target.of(images.read(row))
        except DataError as error:
            return str(error)

    broken: list[tuple[str, str]] = []
    pixels = all(isinstance(one, Pixels) for one in images.references)
    with in_threads(1 if pixels else None) as pool:
        for begin in range(0, len(images), CHUNK):
            rows = range(begin, min(begin + CHUNK, len(images)))
            block = np.zeros((len(rows), target.channels, target.size, target.size), np.uint8)
            for place, image in enumerate(pool.map(decode, rows)):
                if isinstance(image, str):
                    broken.append((images.names[rows[place]], image))
                else:
                    block[place] = image
            yield block
    if broken:
        first, why = broken[0]
        others = "".join(f", {name}" for name, _ in broken[1:SHOWN])
        more = f" and {len(broken) - SHOWN:,} more" if len(broken) > SHOWN else ""
        raise DataError(
            f"{len(broken):,} of {plural(len(images), 'image')} cannot be read: {first} ({why})"
            f"{others}{more}; replace them, or leave them out with --skip-broken (in Python: "
            f"without_broken)"
        )
