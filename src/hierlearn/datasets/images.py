"""Images with their labels: folders, tar shards, and columns of tables.

    animal/dog/pug/001.jpg     an image of the class animal/dog/pug

Where ``train``, ``valid`` and ``test`` are the only folders at the top, they are splits. In tar
shards, as WebDataset writes them, files with the same stem are one sample:

    000017.jpg     the image
    000017.cls     its label, one line; or .txt, or .json with "label": a path, or a list of them

One pass over the headers finds the members; images are then read by their place, and nothing is
unpacked. Without a label file, the folder of a member is its class. Shards whose names begin with
``train``, ``valid`` or ``test`` are splits, if all do. A table has paths of images relative to its
folder; a Parquet column may also hold their bytes, or ``{bytes, path}``, as Hugging Face datasets
write images.

Images stay where they are. One is read when it is needed, as the bytes of its file, then decoded to
grey or RGB:

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
import re
import tarfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from glob import has_magic
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal, cast, get_args

import numpy as np

from hierlearn.datasets.labels import ALIASES, Annotations
from hierlearn.datasets.tables import holds_tables, open_table
from hierlearn.datasets.tables.arrow import ParquetFile, opened_parquet
from hierlearn.datasets.tables.read import Columns
from hierlearn.datasets.tables.table import TableChunk
from hierlearn.errors import DataError, HierlearnError, place, plural, shown, unknown_name
from hierlearn.files.locations import RemotePath
from hierlearn.files.reading import (
    DAMAGE,
    cannot_read,
    is_file,
    is_folder,
    open_regular,
    parse_json,
    read_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Dataset, Kind
    from hierlearn.datasets.labels import Unknown
    from hierlearn.datasets.tables.table import TableFile
    from hierlearn.files.locations import Location
    from hierlearn.hierarchy import Hierarchy


MOST_BYTES = 1 << 28  # of the file of one image, 256 MB
ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
MOST_PIXELS = 1 << 27  # of one image, 134 million: 11,585 x 11,585
Fit = Literal["pad", "crop", "stretch"]
FITS: tuple[Fit, ...] = get_args(Fit)
GREY = ("1", "L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B", "I;16N")
WHITE = 255
LABELS = (".cls", ".txt", ".json")
MOST_LABEL = 1 << 16  # bytes of a label
MOST_MEMBERS = 1 << 24  # of one tar file
NAMES = ("label", "path", "class", "cls")  # of the label in a JSON file
GROUPS = 2  # row groups that are held at a time


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
        """Return the bytes of the file; raise on names and links that lead out of the folder."""
        path = self.root / self.name
        check_below(self.root, self.name)
        try:
            inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.root))
        except (OSError, ValueError):
            raise DataError(f"{shown(self.name)} cannot be the name of a file") from None
        if not inside:
            raise DataError(f"{path} is a link that leads out of {self.root}; copy the file itself")
        if path.suffix.lower() == ".gz":
            raise DataError(f"{path} is compressed; images are read as they are")
        return read_bytes(path, MOST_BYTES)


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
        """Return the bytes of the member, or refuse one that is too large or cut off."""
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
        return self.references[row].read()  # type: ignore[no-any-return]

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
    """Return the first frame of an image in mode L or RGB, turned as its EXIF says.

    Integers of 16 or 32 bits are taken as parts of 65,535, floats as they are.
    """
    image.seek(0)
    image.load()
    image = pillow.ImageOps.exif_transpose(image)
    mode = "L" if image.mode in GREY else "RGB"
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        values = np.nan_to_num(np.asarray(image))
        if values.dtype.kind in "iu" and values.max(initial=0) > WHITE:
            values = np.clip(values, 0, 65_535) // 257
        elif values.dtype.kind == "f" and values.max(initial=0) <= 1:
            values = values * WHITE
        return pillow.Image.fromarray(np.clip(values, 0, WHITE).astype(np.uint8))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        over = image.convert("RGBA")
        white = pillow.Image.new("RGBA", over.size, (WHITE,) * 4)
        image = pillow.Image.alpha_composite(white, over)
    return image if image.mode == mode else image.convert(mode)


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


# ---------------------------------------- images with labels


@dataclass(frozen=True)
class Found:
    """Images with their labels, before the taxonomy is known.

    Attributes:
        references: where they are.
        labels: of each image; None where there is none.
        splits: the split of each image; empty where there are none.
    """

    references: Sequence[Any]
    labels: Sequence[tuple[str, ...] | None]
    splits: Sequence[str] = ()


def is_images(source: str | Path) -> bool:
    """Whether a source is a folder, a tar file, or a pattern of tar files.

    A folder of Parquet files is a table.
    """
    path = Path(source)
    return path.suffix.lower() == ".tar" or (is_folder(path) and not holds_tables(path))


def read_images(
    source: Path | str,
    *,
    hierarchy: Hierarchy | Path | str | None = None,
    unknown: Unknown = "error",
) -> Dataset:
    """Read a folder of images, a folder of tar shards, a tar file, or a pattern of them.

    Images stay where they are. Their ids are their paths.

    Args:
        source: a folder, ``shard.tar``, or ``shards/train-*.tar``.
        hierarchy: the taxonomy, or a file of it; by default inferred from the paths.
        unknown: "error" to raise on a label that the hierarchy does not have, "skip" to leave it
            out, "nearest" to let it count for the nearest class above.

    Raises:
        DataError: if there are no images, or one has no label.
    """
    path, found = Path(source), find_images(source)
    for reference, labels in zip(found.references, found.labels, strict=True):
        if labels is None:
            raise DataError(
                f"{reference.name} has no class; put it into the folder of its class below {source}"
            )
    images = Images(found.references)
    columns = {"label": found.labels, "name": images.names, "split": found.splits}
    roles = Columns(
        "label",
        label_sep=None,
        split="split" if found.splits else None,
        hierarchy=hierarchy,
        id_column="name",
        unknown=unknown,
    )
    annotations = Annotations(path, roles)
    annotations.add(TableChunk(path, columns, range(1, len(images) + 1)))
    dataset = annotations.dataset(images, drop_empty=True)
    name = path.stem.strip("-*_") or path.name
    return replace(dataset, name=name, source=f"images of {path.name}", lines=None)


def find_images(source: Path | str) -> Found:
    """Return the images of a folder, or of tar shards; raise where there are none."""
    path = Path(source)
    shards: list[Path] = []
    if is_folder(path):
        shards = sorted(one for one in path.iterdir() if one.suffix.lower() == ".tar")
    elif path.suffix.lower() == ".tar":
        has_pattern = not is_file(path) and has_magic(str(path))
        shards = sorted(path.parent.glob(path.name)) if has_pattern else [path]
        if not shards:
            raise DataError(f"{source}: no file has such a name")
    else:
        raise DataError(f"{source}: no such folder or tar file")
    found = read_shards(shards) if shards else read_folder(path)
    if not found.references:
        raise DataError(
            f"{source} holds no images; they end in {', '.join(ENDINGS)}, or are members of .tar "
            f"files"
        )
    return found


def read_folder(root: Path) -> Found:
    """Return the images below a folder, in the order of their paths; hidden files are left out."""

    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename}: {error.strerror or error}") from None

    names = []
    for folder, below, files in os.walk(root, onerror=fail):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in below:
            if (Path(folder) / name).is_symlink():
                raise DataError(
                    f"{Path(folder) / name} is a link to a folder, which is not followed; "
                    f"move the images there"
                )
        names += [
            (Path(folder) / name).relative_to(root).as_posix()
            for name in sorted(files)
            if not name.startswith(".") and Path(name).suffix.lower() in ENDINGS
        ]
    tops = {name.partition("/")[0] for name in names if "/" in name}
    splits = [ALIASES.get(name.partition("/")[0], "") for name in names]
    has_splits = bool(tops) and all(top in ALIASES for top in tops) and all(splits)
    paths = ["/".join(name.split("/")[has_splits:-1]) for name in names]
    labels = [(path,) if path else None for path in paths]
    return Found([ImageFile(root, name) for name in names], labels, splits if has_splits else ())


def without_broken(dataset: Dataset) -> tuple[Dataset, dict[str, str]]:
    """Return a dataset without images that cannot be decoded, and why, by name.

    Every image is decoded once for this.
    """
    images: Any = dataset.inputs
    broken = find_broken(images)
    reasons = {images.names[row]: why for row, why in broken.items()}
    if not broken:
        return dataset, {}
    kept = np.setdiff1d(np.arange(len(dataset)), list(broken))
    if not len(kept):
        raise DataError(
            f"none of {plural(len(dataset), 'image')} can be read; of the first: {broken[0]}"
        )
    return dataset.keep(kept), reasons


# ---------------------------------------- tar shards


def read_shards(shards: Sequence[Path]) -> Found:
    """Return the images of tar files, in the order of the files and their members."""
    references: list[Any] = []
    labels: list[tuple[str, ...] | None] = []
    splits: list[str] = []
    for shard in shards:
        images: dict[str, TarMember] = {}  # by stem, as the labels
        named: dict[str, TarMember] = {}
        for member in members(shard):
            folder, slash, base = member.name.rpartition("/")
            stem, dot, ending = base.partition(".")
            if not stem or not dot:
                continue
            stem, kind = f"{folder}{slash}{stem}", f".{ending.lower()}"
            if kind in ENDINGS:
                if images.setdefault(stem, member) is not member:
                    raise DataError(
                        f"{shard} has two images of one name, {images[stem].name} and {member.name}"
                    )
            elif kind in LABELS and (stem not in named or kind == ".cls"):
                named[stem] = member
        references += images.values()
        labels += [label_of(stem, named.get(stem)) for stem in images]
        word = re.match(r"[A-Za-z]*", shard.stem)  # the split that the name begins with
        splits += [ALIASES.get(word.group().lower(), "") if word else ""] * len(images)
    return Found(references, labels, splits if all(splits) else ())


def members(shard: Path) -> Iterator[TarMember]:
    """Yield the regular members of a tar file; only headers are read."""
    with open_regular(shard) as file:
        begin = file.read(2)
        file.seek(0)
        if begin in (b"\x1f\x8b", b"BZ"):
            raise DataError(f"{shard} is compressed, so its members have no place; unpack it first")
        size = os.fstat(file.fileno()).st_size
        try:
            held = cast("BinaryIO", InBounds(file, size))
            with tarfile.open(fileobj=held, mode="r:") as archive:
                for number, one in enumerate(archive):
                    if number >= MOST_MEMBERS:
                        raise DataError(f"{shard} has more than {MOST_MEMBERS:,} members")
                    archive.members = []  # type: ignore[attr-defined]  # otherwise all headers would stay in memory
                    if not one.isdir() and not 0 <= one.size <= size - one.offset_data:
                        raise DataError(
                            f"{shard}: its member {shown(one.name)} claims {one.size:,} bytes, but "
                            f"{max(0, size - one.offset_data):,} are there; copy it again"
                        )
                    if one.isdir() or one.name.rpartition("/")[2].startswith("."):
                        continue
                    if not one.isreg() or one.issparse():
                        raise DataError(
                            f"{shard}: its member {shown(one.name)} is a link, a device or "
                            f"sparse; tar plain files"
                        )
                    yield TarMember(shard, one.name, one.offset_data, one.size)
        except HierlearnError:
            raise
        except (tarfile.TarError, OSError, *DAMAGE) as error:
            raise DataError(f"{shard} is not a tar file that can be read ({error})") from None


class InBounds:
    """A file that never reads or seeks beyond its end, whatever a header claims.

    Args:
        file: open for reading.
        size: of the file.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size = file, size
        self.tell = file.tell

    def read(self, count: int = -1) -> bytes:
        """Return at most what is left."""
        left = max(0, self.size - self.file.tell())
        return self.file.read(left if count < 0 else min(count, left))

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place in the file."""
        if not 0 <= place <= self.size:
            raise tarfile.ReadError(f"a header leads to byte {place:,} of {self.size:,}")
        return self.file.seek(place, whence)


def label_of(stem: str, member: TarMember | None) -> tuple[str, ...] | None:
    """Return the labels in a member, else its folder; None where there are none."""
    if member is None:
        folder = stem.rpartition("/")[0].removeprefix("./").strip("/")
        return (folder,) if folder else None
    if member.size > MOST_LABEL:
        raise DataError(f"{member.path}: the label {member.name} has {member.size:,} bytes")
    where = f"{member.path}, {member.name}"
    try:
        text = member.read().decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise DataError(f"{where}: the label is not UTF-8") from None
    if not member.name.lower().endswith(".json"):
        return (text,) if text else None
    value = parse_json(text, where)
    if isinstance(value, dict):
        name = next((one for one in NAMES if one in value), None)
        if name is None:
            raise DataError(f"{where}: there is no 'label' among {', '.join(value) or 'nothing'}")
        value = value[name]
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(one, (str, int)) and not isinstance(one, bool) for one in found):
        raise DataError(f"{where}: a label is a name or a list of names, not {value!r}")
    return tuple(map(str, found))


# ---------------------------------------- columns of tables


@dataclass(frozen=True)
class ParquetImage:
    """The image of a row of a Parquet file.

    Attributes:
        path: the file.
        column: of the images.
        group: the row group.
        row: in the group.
        name: what to call it.
    """

    path: Location
    column: str
    group: int
    row: int
    name: str

    def read(self) -> bytes:
        """Return the bytes of the image."""
        cell = read_group(self.path, self.column, self.group)[self.row].as_py()
        found = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(found, bytes):
            raise DataError("the cell has no bytes of an image")
        return found


@lru_cache(maxsize=GROUPS)
def read_group(path: Location, column: str, group: int) -> Any:
    """Return the cells of a column in a row group."""
    with opened_parquet(path) as file:
        return file.read_row_group(group, columns=[column]).column(column)


def read_image_table(path: Path | str, *, image: str, **columns: Any) -> Dataset:
    """Read a table whose input is a column of images, which stay where they are.

    Args:
        path: a CSV, TSV or Parquet file.
        image: the column of paths, or of bytes in Parquet.
        columns: the other arguments of ``read_table``, but not its inputs.
    """
    delimiter = columns.pop("delimiter", None)
    roles = Columns(text=image, **columns)
    file = open_table(path, delimiter)
    roles.inputs_of(file)
    table = file.read([*roles.annotations])
    annotations = Annotations(file.path, roles)
    annotations.add(table)
    return annotations.dataset(table_images(file, image))


def table_images(file: TableFile, column: str) -> Images:
    """Return the images of a column of a table."""
    file.check_columns([column])
    if isinstance(file, ParquetFile) and not holds_text(file, column):
        return Images(parquet_images(file, column))
    if isinstance(file.path, RemotePath):
        raise DataError(
            f"{file.path}: paths of images are read beside a local table; store the bytes of the "
            f"images in the column {column!r}"
        )
    table = file.read([column])
    root = file.path if file.path.is_dir() else file.path.parent
    names = table.texts(column)
    for line, name in zip(table.lines, names, strict=True):
        try:
            check_below(root, name)
        except DataError as error:
            raise DataError(f"{place(file.path, line, column)}: {error.message}") from None
    return Images(ImageFile(root, name) for name in names)


def holds_text(file: ParquetFile, column: str) -> bool:
    """Whether a column of a Parquet file holds texts; raise where it cannot hold images."""
    from pyarrow import types

    with opened_parquet(file.files[0]) as opened:
        kind = opened.schema_arrow.field(column).type
    held = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_struct(held) and held.get_field_index("bytes") >= 0:
        held = held.field("bytes").type
    elif types.is_string(held) or types.is_large_string(held):
        return True
    if types.is_binary(held) or types.is_large_binary(held):
        return False
    raise DataError(
        f"{file.path}: column {column!r} holds {kind}, not images: paths, bytes, or a struct of "
        f"bytes and path"
    )


def parquet_images(file: ParquetFile, column: str) -> list[ParquetImage]:
    """Return where the images of a Parquet column are; they are named by path, or by row."""
    found = []
    for group in range(len(file.group_offsets) - 1):
        begin, end = (int(one) for one in file.group_offsets[group : group + 2])
        names = [f"row {number + 1}" for number in range(begin, end)]
        path, number = file.place_of(group)
        cells = read_group(path, column, number)
        if hasattr(cells.type, "get_field_index") and cells.type.get_field_index("path") >= 0:
            import pyarrow.compute as pc

            paths = pc.struct_field(cells, "path").to_pylist()
            names = [str(one or name) for one, name in zip(paths, names, strict=True)]
        found += [ParquetImage(path, column, number, row, name) for row, name in enumerate(names)]
    return found
