"""Omniglot: characters of five alphabets, each drawn by twenty people.

A class is its path, for example ``Greek/character07``. The images are those of the first small
background set (Lake, Salakhutdinov and Tenenbaum, 2015): 2,720 drawings of 136 characters of the
alphabets Balinese, Early Aramaic, Greek, Korean and Latin, 105 x 105 pixels in black and white.
"""

from __future__ import annotations

import hashlib
import io
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.images import find_pillow
from hierlearn.datasets.registry import DatasetEntry
from hierlearn.errors import DataError
from hierlearn.hierarchy import Hierarchy
from hierlearn.lab.corpora.download import Archive, have_archives, obtain, read_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    Progress = Callable[[int, int | None], None]

REPOSITORY = "brendenlake/omniglot"
COMMIT = "32aee47094f15296299b761dcaa01400b90c60d5"
FOLDER = "images_background_small1"
ARCHIVE = Archive(
    name=f"{FOLDER}.zip",
    size=1_319_022,
    sha256="f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4",
    fetched_by="http",
    source=f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/python/{FOLDER}.zip",
)
LICENSE = "MIT"
ATTRIBUTION = (
    "Lake, Salakhutdinov and Tenenbaum (2015). Human-level concept learning through probabilistic "
    "program induction. Science 350, 1332-1338."
)
PEOPLE = 20
VALID_PEOPLE, TEST_PEOPLE = 3, 5  # of the twenty


def load_omniglot(
    side: int = 28,
    seed: int = 0,
    *,
    data_dir: Path | str | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Load the drawings as rows of pixels, each labeled with the path of its character.

    The splits are by the number of the person who drew: twelve train, three validate and five
    test. No hand is in two splits, and every character is in each of them.

    Args:
        side: the images are scaled down to ``side`` x ``side`` pixels by averaging areas.
        seed: decides which people validate and test.
        data_dir: a folder with the zip file, searched first.
        download: whether the zip file may be downloaded.
        progress: called with the bytes received and their total.

    Returns:
        The drawings in the order of the archive, (N, side * side) float32 with 1 for ink and 0 for
        paper, row by row; ids are those of the files, ``0108_01``.

    Raises:
        DataError: if the side is out of range, or the zip file is absent or another one.
        DownloadError: if the download fails.
    """
    path = obtain(ARCHIVE, data_dir=data_dir, download=download, progress=progress)
    members = read_members(path, lambda name: name.endswith(".png"), "images in PNG files")
    names = [name.split("/") for name in members]  # folder, alphabet, character, file
    if any(len(parts) != 4 for parts in names):
        raise DataError(f"{path} is not laid out as {FOLDER}/alphabet/character/image.png")
    pillow = find_pillow()
    opened = (pillow.Image.open(io.BytesIO(content)) for content in members.values())
    read = [~np.asarray(image.convert("1")) for image in opened]  # True for ink
    if len({image.shape for image in read}) > 1:
        raise DataError(f"{path} holds images of several sizes; fetch the file again")
    images = np.stack(read)
    if not 1 <= side <= images.shape[1]:
        raise DataError(f"side {side} of omniglot must be from 1 to {images.shape[1]} pixels")
    paths = ["/".join(parts[1:3]) for parts in names]
    ids = [parts[3].removesuffix(".png") for parts in names]
    hierarchy = Hierarchy.from_paths(list(dict.fromkeys(paths)))
    return Dataset(
        inputs=scaled_down(images, side).reshape(len(images), -1),
        labels=[[path] for path in paths],
        hierarchy=hierarchy.with_titles(read_titles(hierarchy.names)),
        splits=_split_by_person([int(one.rpartition("_")[2]) for one in ids], seed),
        name="omniglot",
        source=f"The file {ARCHIVE.name} of https://github.com/{REPOSITORY}, SHA-256 verified.",
        ids=ids,
    )


def read_titles(classes: Iterable[str]) -> dict[str, str]:
    """Return the title of each class: ``Early Aramaic`` and ``Greek character 7``."""
    titles = {}
    for one in classes:
        alphabet, _, character = one.replace("_", " ").partition("/")
        number = character.removeprefix("character").lstrip("0")
        titles[one] = f"{alphabet} character {number}" if character else alphabet
    return titles


def scaled_down(images: NDArray[np.bool_], side: int) -> NDArray[np.float32]:
    """Average areas of images (N, H, W) so that they become (N, side, side)."""
    weights = []  # (side, length): how much each of ``length`` pixels adds to each of ``side``
    for length in images.shape[1:]:
        edges, pixels = np.linspace(0, length, side + 1), np.arange(length)
        begin = np.maximum(edges[:-1, None], pixels)
        end = np.minimum(edges[1:, None], pixels + 1)
        weights.append((np.clip(end - begin, 0, None) * side / length).astype(np.float32))
    rows, columns = weights
    found: NDArray[np.float32] = rows @ images.astype(np.float32) @ columns.T
    return found


def _split_by_person(people: list[int], seed: int) -> dict[str, NDArray[np.int64]]:
    # The order of a hash: unlike a random generator's, it is the same in every version.
    order = sorted(
        range(1, PEOPLE + 1), key=lambda one: hashlib.sha256(f"{seed}/{one}".encode()).digest()
    )
    drawn = {
        "valid": order[:VALID_PEOPLE],
        "test": order[VALID_PEOPLE : VALID_PEOPLE + TEST_PEOPLE],
    }
    drawn = {"train": order[VALID_PEOPLE + TEST_PEOPLE :], **drawn}
    return {
        split: np.flatnonzero(np.isin(people, own)).astype(np.int64) for split, own in drawn.items()
    }


ENTRY = DatasetEntry(
    "omniglot",
    "handwritten characters: images, by alphabet and character",
    "archive",
    load_omniglot,
    LICENSE,
    ATTRIBUTION,
    files=(ARCHIVE,),
    locate=partial(have_archives, (ARCHIVE,)),
)
