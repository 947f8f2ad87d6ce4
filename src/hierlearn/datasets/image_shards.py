"""Tar shards of images, as WebDataset writes them: files with the same stem are one sample.

    000017.jpg     the image
    000017.cls     its label, one line; or .txt, or .json with "label": a path, or a list of them

One pass over the headers finds the members; images are then read by their place, and nothing is
unpacked. Without a label file, the folder of a member is its class. Shards whose names begin with
``train``, ``valid`` or ``test`` are splits, if all do.
"""

from __future__ import annotations

import os
import re
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hierlearn.datasets.annotations import ALIASES
from hierlearn.datasets.image_folder import Found
from hierlearn.datasets.images import ENDINGS, TarMember
from hierlearn.errors import DataError, HierlearnError, shown
from hierlearn.files.reading import DAMAGE, is_file, is_folder, open_regular, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LABELS = (".cls", ".txt", ".json")
MOST_LABEL = 1 << 16  # bytes of a label
MOST_MEMBERS = 1 << 24  # of one tar file
NAMES = ("label", "path", "class", "cls")  # of the label in a JSON file


@dataclass
class Sample:
    """The members of a tar file with the same stem."""

    image: TarMember | None = None
    label: TarMember | None = None
    others: list[str] = field(default_factory=list)


def find_shards(source: Path) -> list[Path]:
    """Return the tar files of a source: one, those of a pattern, or those of a folder."""
    if is_folder(source):
        return sorted(one for one in source.iterdir() if one.suffix.lower() == ".tar")
    if source.suffix.lower() != ".tar":
        return []
    if is_file(source) or not re.search(r"[*?\[]", str(source)):
        return [source]
    found = sorted(source.parent.glob(source.name))
    if not found:
        raise DataError(f"{source}: no file has such a name")
    return found


def read_shards(shards: Sequence[Path]) -> Found:
    """Return the images of tar files, in the order of the files and their members."""
    references: list[Any] = []
    labels: list[tuple[str, ...] | None] = []
    splits: list[str] = []
    for shard in shards:
        for name, sample in samples(shard).items():
            if sample.image is None:
                continue
            references.append(sample.image)
            labels.append(label_of(name, sample))
            splits.append(split_of(shard))
    return Found(references, labels, splits if all(splits) else ())


def split_of(shard: Path) -> str:
    """Return the split that the name of a shard begins with; empty where there is none."""
    word = re.match(r"[A-Za-z]*", shard.stem)
    return "" if word is None else ALIASES.get(word.group().lower(), "")


def samples(shard: Path) -> dict[str, Sample]:
    """Return the samples of a tar file by stem."""
    found: dict[str, Sample] = {}
    for member in members(shard):
        folder, slash, base = member.name.rpartition("/")
        stem, dot, ending = base.partition(".")
        if not stem or not dot:
            continue
        sample = found.setdefault(f"{folder}{slash}{stem}", Sample())
        kind = f".{ending.lower()}"
        if kind in ENDINGS:
            if sample.image is not None:
                raise DataError(
                    f"{shard} has two images of one name, {sample.image.name} and {member.name}"
                )
            sample.image = member
        elif kind in LABELS and (sample.label is None or kind == ".cls"):
            sample.label = member
    return found


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


def label_of(stem: str, sample: Sample) -> tuple[str, ...] | None:
    """Return the labels of a sample; None where it has none."""
    if sample.label is None:
        folder = stem.rpartition("/")[0].removeprefix("./").strip("/")
        return (folder,) if folder else None
    if sample.label.size > MOST_LABEL:
        raise DataError(
            f"{sample.label.path}: the label {sample.label.name} has {sample.label.size:,} bytes"
        )
    where = f"{sample.label.path}, {sample.label.name}"
    try:
        text = sample.label.read().decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise DataError(f"{where}: the label is not UTF-8") from None
    if not sample.label.name.lower().endswith(".json"):
        return (text,) if text else None
    return labels_in(parse_json(text, where), where)


def labels_in(value: Any, where: str) -> tuple[str, ...]:
    """Return the labels of a JSON value: a name, a number, a list of names, or below "label"."""
    if isinstance(value, dict):
        name = next((one for one in NAMES if one in value), None)
        if name is None:
            raise DataError(f"{where}: there is no 'label' among {', '.join(value) or 'nothing'}")
        value = value[name]
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(one, (str, int)) and not isinstance(one, bool) for one in found):
        raise DataError(f"{where}: a label is a name or a list of names, not {value!r}")
    return tuple(str(one) for one in found)
