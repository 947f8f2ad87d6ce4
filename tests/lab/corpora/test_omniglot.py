"""Omniglot out of a small zip file of the same layout, and out of the real one."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from archive_files import check_splits, needs, pin, write_zip
from hierlearn import DATASETS, load_dataset
from hierlearn.errors import DataError
from hierlearn.lab.corpora import omniglot

FOLDER = Path(__file__).parents[4] / "shared" / "data" / "omniglot"
SHARED = FOLDER if FOLDER.is_dir() else None
CHARACTERS = ("Greek/character01", "Greek/character12", "Early_Aramaic/character01")


def bilevel_png(pixels):
    """Return a PNG image of pixels that are True where they are black."""

    def chunk(kind, content):
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    height, width = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in np.packbits(~pixels, axis=1))
    header = struct.pack(">II5B", width, height, 1, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def drawings():
    random = np.random.default_rng(0)
    for number, character in enumerate(CHARACTERS):
        for person in range(1, 21):
            yield character, f"{number:04}_{person:02}", random.random((12, 12)) < 0.3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    members = {"images_background_small1/": b"", "__MACOSX/._x": b"?"}
    for character, name, pixels in drawings():
        members[f"{omniglot.FOLDER}/{character}/{name}.png"] = bilevel_png(pixels)
    path = write_zip(tmp_path / omniglot.ARCHIVE.name, members)
    monkeypatch.setattr(omniglot, "ARCHIVE", pin(omniglot.ARCHIVE, path))
    return tmp_path


def test_drawings_are_rows_of_ink(folder):
    dataset = load_dataset("omniglot", data_dir=folder, side=12)
    expected = list(drawings())
    assert dataset.ids == [name for _, name, _ in expected]
    assert dataset.labels == [[character] for character, _, _ in expected]
    assert dataset.inputs.dtype == np.float32
    assert np.array_equal(dataset.inputs, [pixels.ravel() for _, _, pixels in expected])
    assert dataset.hierarchy.level_sizes == (2, 3)


def test_pixels_are_averages_of_areas(folder):
    dataset = load_dataset("omniglot", data_dir=folder, side=4)
    for row, (_, _, pixels) in enumerate(drawings()):
        blocks = pixels.reshape(4, 3, 4, 3).mean(axis=(1, 3))
        np.testing.assert_allclose(dataset.inputs[row].reshape(4, 4), blocks, atol=1e-6)


def test_a_side_that_does_not_divide_keeps_the_ink():
    images = np.random.default_rng(1).random((3, 105, 105)) < 0.2
    small = omniglot.scaled_down(images, 28)
    np.testing.assert_allclose(small.mean(axis=(1, 2)), images.mean(axis=(1, 2)), atol=1e-5)
    # The same picture of 5 x 5 fields at two sizes; 7 divides the one side and not the other.
    wide = np.repeat(np.repeat(images[:, :5, :5], 28, axis=1), 28, axis=2)
    repeated = np.repeat(np.repeat(images[:, :5, :5], 20, axis=1), 20, axis=2)
    np.testing.assert_allclose(
        omniglot.scaled_down(wide, 7), omniglot.scaled_down(repeated, 7), atol=1e-6
    )


def test_a_person_is_in_one_split(folder):
    seen = set()
    for seed in range(4):
        dataset = load_dataset("omniglot", data_dir=folder, side=12, seed=seed)
        check_splits(dataset, [(name[-2:],) for name in dataset.ids])
        sizes = {name: len(own) for name, own in dataset.splits.items()}
        assert sizes == {"train": 36, "valid": 9, "test": 15}
        seen.add(tuple(dataset.splits["test"]))
    assert len(seen) > 1


def test_titles_of_the_classes(folder):
    names = load_dataset("omniglot", data_dir=folder, side=12).hierarchy.names
    titles = omniglot.read_titles(names)
    assert titles.keys() == set(names)
    assert titles["Early_Aramaic"] == "Early Aramaic"
    assert titles["Greek/character12"] == "Greek character 12"


@pytest.mark.parametrize("side", [0, 13])
def test_a_side_out_of_range(folder, side):
    with pytest.raises(DataError, match=f"side {side} of omniglot must be from 1 to 12 pixels"):
        load_dataset("omniglot", data_dir=folder, side=side)


def test_another_layout(tmp_path, monkeypatch):
    path = write_zip(tmp_path / omniglot.ARCHIVE.name, {"a/b.png": bilevel_png(np.eye(2) > 0)})
    monkeypatch.setattr(omniglot, "ARCHIVE", pin(omniglot.ARCHIVE, path))
    with pytest.raises(DataError, match="is not laid out as images_background_small1/alphabet"):
        load_dataset("omniglot", data_dir=tmp_path)


def test_images_of_several_sizes(tmp_path, monkeypatch):
    images = {f"f/a/c/0_0{n}.png": bilevel_png(np.eye(n) > 0) for n in (2, 3)}
    path = write_zip(tmp_path / omniglot.ARCHIVE.name, images)
    monkeypatch.setattr(omniglot, "ARCHIVE", pin(omniglot.ARCHIVE, path))
    with pytest.raises(DataError, match="holds images of several sizes"):
        load_dataset("omniglot", data_dir=tmp_path)


def test_the_facts_of_the_real_file():
    needs(omniglot.ARCHIVE, data_dir=SHARED)
    dataset = DATASETS["omniglot"](download=False, data_dir=SHARED)
    assert dataset.inputs.shape == (2_720, 784)
    assert dataset.hierarchy.level_sizes == (5, 136)
    assert {name: len(own) for name, own in dataset.splits.items()} == {
        "train": 1_632,
        "valid": 408,
        "test": 680,
    }
    check_splits(dataset, [(name[-2:],) for name in dataset.ids])
    assert 0.02 < dataset.inputs.mean() < 0.2  # ink on paper, not paper on ink
