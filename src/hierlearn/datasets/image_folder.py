"""Folders of images: one folder per class, nested as the taxonomy is.

    animal/dog/pug/001.jpg     an image of the class animal/dog/pug

Where ``train``, ``valid`` and ``test`` are the only folders at the top, they are splits. A folder
of tar files is read as shards, see ``image_shards``.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.annotations import ALIASES
from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.images import ENDINGS, ImageFile, Images
from hierlearn.datasets.label_report import class_labels, unseen_rows
from hierlearn.datasets.readers import holds_tables
from hierlearn.errors import DataError, HierlearnError, plural
from hierlearn.files.reading import is_folder
from hierlearn.hierarchy import Hierarchy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hierlearn.datasets.label_report import Unknown


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
    found = find_images(source)
    for reference, labels in zip(found.references, found.labels, strict=True):
        if labels is None:
            raise DataError(
                f"{reference.name} has no class; put it into the folder of its class below {source}"
            )
    if isinstance(hierarchy, (str, Path)):
        hierarchy = Hierarchy.read(hierarchy)
    return labeled_images(found, Path(source), hierarchy, unknown)


def read_unlabeled_images(source: Path | str) -> Images:
    """Return the images of a source that ``read_images`` takes; labels are not needed."""
    return Images(find_images(source).references)


def find_images(source: Path | str) -> Found:
    """Return the images of a folder, or of tar shards; raise where there are none."""
    from hierlearn.datasets.image_shards import find_shards, read_shards

    path = Path(source)
    shards = find_shards(path)
    if not shards and not is_folder(path):
        raise DataError(f"{source}: no such folder or tar file")
    found = read_shards(shards) if shards else read_folder(path)
    if not found.references:
        raise DataError(
            f"{source} holds no images; they end in {', '.join(ENDINGS)}, or are members of .tar "
            f"files"
        )
    return found


def read_folder(root: Path) -> Found:
    """Return the images below a folder, in the order of their paths."""
    names = list(image_names(root))
    tops = {name.partition("/")[0] for name in names if "/" in name}
    splits = [ALIASES.get(name.partition("/")[0], "") for name in names]
    has_splits = bool(tops) and all(top in ALIASES for top in tops) and all(splits)
    labels = []
    for name in names:
        parts = name.split("/")[1 if has_splits else 0 : -1]
        labels.append(("/".join(parts),) if parts else None)
    references = [ImageFile(root, name) for name in names]
    return Found(references, labels, splits if has_splits else ())


def image_names(root: Path) -> Iterator[str]:
    """Yield the paths of images below a folder; hidden files are left out."""

    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename}: {error.strerror or error}") from None

    for folder, below, files in os.walk(root, onerror=fail):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in below:
            if (Path(folder) / name).is_symlink():
                raise DataError(
                    f"{Path(folder) / name} is a link to a folder, which is not followed; "
                    f"move the images there"
                )
        for name in sorted(files):
            if not name.startswith(".") and Path(name).suffix.lower() in ENDINGS:
                yield (Path(folder) / name).relative_to(root).as_posix()


def labeled_images(
    found: Found, source: Path, hierarchy: Hierarchy | None, unknown: Unknown = "error"
) -> Dataset:
    """Return the dataset of images with labels."""
    counts = Counter(labels for labels in found.labels if labels is not None)
    sets = list(counts)
    if hierarchy is None:
        paths = dict.fromkeys(label for labels in sets for label in labels)
        try:
            hierarchy = Hierarchy.from_paths(list(paths))
        except HierlearnError as error:
            raise type(error)(f"{source}: {error}") from None
    firsts: dict[tuple[str, ...] | None, int] = {}
    for number, one in enumerate(found.labels, start=1):
        firsts.setdefault(one, number)
    named, report = class_labels(
        sets,
        list(counts.values()),
        hierarchy,
        unknown=unknown,
        path=source,
        lines=[firsts[one] for one in sets],
    )
    known = dict(zip(sets, named, strict=True))
    numbers = {one: number for number, one in enumerate(sets)}
    images = Images(found.references)
    labels = [known[one] for one in found.labels if one is not None]
    splits = np.array(found.splits)
    dataset = Dataset(
        inputs=images,
        labels=labels,
        hierarchy=hierarchy,
        splits={name: np.flatnonzero(splits == name) for name in dict.fromkeys(found.splits)},
        name=source.stem.strip("-*_") or source.name,
        source=f"images of {source.name}",
        ids=images.names,
        label_report=report,
        unseen=unseen_rows(sets, (numbers[one] for one in found.labels if one is not None), report),
    )
    gone = np.array([not one for one in labels], dtype=bool)
    gone[list(dataset.unseen)] = False
    report.rows_left_out = int(gone.sum())
    report.warn(source)
    return dataset.keep(~gone) if report.rows_left_out else dataset


def without_broken(dataset: Dataset) -> tuple[Dataset, dict[str, str]]:
    """Return a dataset without images that cannot be decoded, and why, by name.

    Every image is decoded once for this.
    """
    from hierlearn.datasets.decode_image import find_broken

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
