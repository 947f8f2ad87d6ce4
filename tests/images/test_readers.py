"""Folders, shards and tables of images."""

import os
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hierlearn.datasets import Images, describe, read_image_table, read_images
from hierlearn.datasets.images import MOST_BYTES, TarMember, without_broken
from hierlearn.datasets.labels import LabelWarning
from hierlearn.errors import DataError, LabelError
from hierlearn.hierarchy import Hierarchy
from images.picture_files import (
    COLORS,
    add_member,
    encoded,
    make_folder,
    make_shard,
    picture,
)


def test_a_folder_per_class(tmp_path):
    dataset = read_images(make_folder(tmp_path))
    assert dataset.kind == "images"
    assert len(dataset) == 12
    assert set(dataset.hierarchy.names) == {"warm", "cold", *COLORS}
    assert dataset.labels[0] == ["cold/blue"]
    assert dataset.ids[0] == "cold/blue/000.png"
    assert dataset.splits == {}
    assert describe(dataset)["inputs"] == {"kind": "images"}


def test_splits_are_the_only_folders_at_the_top(tmp_path):
    for split in ("train", "val", "test"):
        make_folder(tmp_path, 2, split)
    dataset = read_images(tmp_path)
    assert {name: len(rows) for name, rows in dataset.splits.items()} == dict.fromkeys(
        ("test", "train", "valid"), 6
    )
    assert set(dataset.hierarchy.names) == {"warm", "cold", *COLORS}
    make_folder(tmp_path, 1, "other")
    assert read_images(tmp_path).splits == {}


def test_rows_are_taken_like_those_of_an_array(tmp_path):
    dataset = read_images(make_folder(tmp_path))
    rows = np.array([5, 0, 5])
    assert dataset.take(rows).inputs.names == [dataset.ids[row] for row in rows]
    mask = np.arange(12) % 2 == 0
    assert dataset.inputs[mask].names == dataset.ids[::2]
    assert dataset.inputs[2:4].shape == (2,)


def test_a_digest_is_that_of_the_content_wherever_it_is(tmp_path):
    first = read_images(make_folder(tmp_path / "a"))
    second = read_images(make_folder(tmp_path / "b"))
    assert first.digest() == second.digest()
    path = tmp_path / "b" / "warm" / "red" / "000.png"
    picture((1, 2, 3)).save(path)
    assert first.digest() != read_images(tmp_path / "b").digest()


def test_a_taxonomy_names_the_classes_of_a_flat_folder(tmp_path):
    tree = Hierarchy.from_paths(list(COLORS))
    for name, color in COLORS.items():
        folder = tmp_path / name.rpartition("/")[2]
        folder.mkdir()
        picture(color).save(folder / "a.png")
    dataset = read_images(tmp_path, hierarchy=tree)
    assert dataset.labels == [["cold/blue"], ["warm/orange"], ["warm/red"]]
    (tmp_path / "pink").mkdir()
    picture((250, 180, 200)).save(tmp_path / "pink" / "a.png")
    with pytest.raises(LabelError, match="pink"):
        read_images(tmp_path, hierarchy=tree)
    with pytest.warns(LabelWarning, match="hierarchy|skipped") as warned:
        assert len(read_images(tmp_path, hierarchy=tree, unknown="skip")) == 3
    assert any("'pink'" in str(one.message) for one in warned)


def test_what_a_folder_must_not_have(tmp_path):
    with pytest.raises(DataError, match=r"holds no images; they end in \.jpg"):
        read_images(tmp_path)
    with pytest.raises(DataError, match="no such folder or tar file"):
        read_images(tmp_path / "nothing")
    make_folder(tmp_path / "images")
    picture((1, 2, 3)).save(tmp_path / "images" / "alone.png")
    with pytest.raises(DataError, match=r"alone.png has no class; put it into the folder"):
        read_images(tmp_path / "images")


def test_links_lead_nowhere(tmp_path):
    root = make_folder(tmp_path / "images")
    picture((1, 2, 3)).save(tmp_path / "secret.png")
    (root / "warm" / "red" / "zzz.png").symlink_to(tmp_path / "secret.png")
    images = read_images(root).inputs
    with pytest.raises(DataError, match="is a link that leads out of"):
        images.read(images.names.index("warm/red/zzz.png"))
    (root / "linked").symlink_to(tmp_path)
    with pytest.raises(DataError, match="linked is a link to a folder, which is not followed"):
        read_images(root)


def test_pipes_and_damage_are_named_or_left_out(tmp_path):
    root = make_folder(tmp_path)
    os.mkfifo(root / "warm" / "red" / "pipe.png")
    (root / "warm" / "red" / "empty.jpg").write_bytes(b"")
    kept, broken = without_broken(read_images(root))
    assert len(kept) == 12
    assert {name.rpartition("/")[2] for name in broken} == {"pipe.png", "empty.jpg"}
    assert "is not a regular file" in broken["warm/red/pipe.png"]


def test_shards(tmp_path):
    labels = list(COLORS) * 2
    for name in ("train-000.tar", "train-001.tar", "valid-000.tar"):
        make_shard(tmp_path / name, labels)
    dataset = read_images(tmp_path)
    assert [len(dataset.splits[name]) for name in ("train", "valid")] == [12, 6]
    assert dataset.labels[:3] == [[name] for name in COLORS]
    assert dataset.inputs.read(1) == encoded(picture(COLORS[labels[1]], seed=1))
    some = read_images(tmp_path / "train-*.tar")
    assert len(some) == 12
    assert len(read_images(tmp_path / "valid-000.tar")) == 6
    with pytest.raises(DataError, match="no file has such a name"):
        read_images(tmp_path / "x-*.tar")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", b'{"label": "warm/red"}', ["warm/red"]),
        ("a.json", b'["warm/red", "cold"]', ["warm/red", "cold"]),
        ("a.txt", b" warm/red\n", ["warm/red"]),
        ("a.cls", b"7", ["7"]),
    ],
)
def test_labels_of_shards(tmp_path, name, content, expected):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        add_member(archive, "a.png", encoded(picture(COLORS["warm/red"])))
        add_member(archive, name, content)
        add_member(archive, "cold/blue/b.png", encoded(picture(COLORS["cold/blue"])))
    dataset = read_images(tmp_path / "a.tar")
    assert dataset.labels == [expected, ["cold/blue"]]  # without a label file, by its folder


def test_what_a_shard_must_not_have(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("a.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(DataError, match=r"a\.png' is a link, a device or sparse"):
        read_images(path)
    with tarfile.open(path, "w:gz") as archive:
        add_member(archive, "a.png", b"x")
    with pytest.raises(DataError, match="is compressed"):
        read_images(path)
    path.write_bytes(b"no tar file " * 100)
    with pytest.raises(DataError, match="is not a tar file that can be read"):
        read_images(path)
    with tarfile.open(path, "w") as archive:
        add_member(archive, "a.png", b"x")
        add_member(archive, "a.json", b'{"other": 1}')
    with pytest.raises(DataError, match="there is no 'label' among other"):
        read_images(path)
    with tarfile.open(path, "w") as archive:
        add_member(archive, "c/a.png", b"x")
        add_member(archive, "c/a.jpg", b"x")
    with pytest.raises(DataError, match="two images of one name"):
        read_images(path)


def test_a_member_of_an_absurd_size_is_refused(tmp_path):
    path = make_shard(tmp_path / "a.tar", ["warm/red"])
    with pytest.raises(DataError, match="and at most"):
        TarMember(path, "a.png", 0, MOST_BYTES + 1).read()
    with pytest.raises(DataError, match=r"ends before its member a\.png"):
        TarMember(path, "a.png", 0, 1 << 25).read()


def test_a_table_of_paths(tmp_path):
    make_folder(tmp_path)
    lines = ["file,kind", *(f"{name}/000.png,{name}" for name in COLORS)]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    dataset = read_image_table(tmp_path / "rows.csv", image="file", label="kind")
    assert dataset.labels == [[name] for name in COLORS]
    assert dataset.inputs.read(0) == (tmp_path / "warm/red/000.png").read_bytes()


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", ""])
def test_paths_of_a_table_stay_beside_it(tmp_path, name):
    (tmp_path / "rows.csv").write_text(f'file,kind,other\n"{name}",a,1\n')
    with pytest.raises(DataError, match=r"rows.csv, line 2, column 'file'"):
        read_image_table(tmp_path / "rows.csv", image="file", label="kind")


@pytest.mark.parametrize("form", ["bytes", "struct", "paths"])
def test_a_parquet_file_of_images(tmp_path, form):
    make_folder(tmp_path)
    names = [f"{name}/00{number}.png" for name in COLORS for number in range(2)]
    contents = [(tmp_path / name).read_bytes() for name in names]
    column = {
        "bytes": pa.array(contents),
        "struct": pa.array(
            [{"bytes": one, "path": name} for one, name in zip(contents, names, strict=True)]
        ),
        "paths": pa.array(names),
    }[form]
    labels = [name.rpartition("/")[0] for name in names]
    table = pa.table({"image": column, "label": labels})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=4)
    dataset = read_image_table(tmp_path / "rows.parquet", image="image", label="label")
    assert [dataset.inputs.read(row) for row in range(6)] == contents
    assert dataset.inputs.names[5] == ("row 6" if form == "bytes" else names[5])
    assert [row[0] for row in dataset.labels] == labels


def test_a_parquet_column_without_images(tmp_path):
    pq.write_table(pa.table({"image": [1.5], "label": ["a"]}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="column 'image' holds double, not images"):
        read_image_table(tmp_path / "rows.parquet", image="image", label="label")


def test_arrays_are_images_too():
    values = np.random.default_rng(0).integers(0, 256, (4, 6, 5), dtype=np.uint8)
    images = Images.from_array(values)
    assert images.read(2).shape == (1, 6, 5)
    assert images.names == ["0", "1", "2", "3"]
    color = np.repeat(values[..., None], 3, axis=3)
    assert np.array_equal(Images.from_array(color).read(1)[2], values[1])
    with pytest.raises(DataError, match=r"of uint8, not \(4, 6, 5\) of float64"):
        Images.from_array(values.astype(float))


def test_reading_a_shard_leaves_it_as_it_is(tmp_path):
    path = make_shard(tmp_path / "a.tar", list(COLORS))
    before = path.read_bytes()
    read_images(path).inputs.read(0)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.tar"]


# ---------------------------------------------------------------------- forged headers


def forged(path, **fields):
    """Write a tar file whose second header has other bytes, with a checksum that is right."""
    info = tarfile.TarInfo("a.png")
    content = encoded(picture(COLORS["warm/red"]))
    info.size = len(content)
    second = tarfile.TarInfo("b.png")
    second.size = 3
    header = bytearray(second.tobuf())
    for place, value in fields.values():
        header[place : place + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    padding = b"\0" * (-len(content) % 512)
    path.write_bytes(
        info.tobuf() + content + padding + bytes(header) + b"abc" + b"\0" * 509 + b"\0" * 1024
    )
    return path


SIZE, MTIME, TYPE = 124, 136, 156
BIG = (2**80).to_bytes(11, "big")
FORGED = {
    "huge": {"size": (SIZE, b"\x80" + BIG)},
    "negative": {"size": (SIZE, b"\xff" * 10 + b"\xfc\x00")},
    "beyond the end": {"size": (SIZE, b"77777777777\0")},
    "a little beyond": {"size": (SIZE, b"00000010000\0")},
    "no number": {"size": (SIZE, b"zzzzzzzzzzz\0")},
    "time": {"time": (MTIME, b"\x80" + BIG), "size": (SIZE, b"\x80" + BIG)},
    **{
        f"type {kind} {place}": {"type": (TYPE, kind.encode()), "size": (SIZE, size)}
        for kind in "xgLKS"
        for place, size in enumerate((b"\x80" + BIG, b"\xff" * 10 + b"\xfc\x00", b"7" * 11))
    },
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_sizes_are_one_sentence(tmp_path, name):
    path = forged(tmp_path / "x.tar", **FORGED[name])
    with pytest.raises(DataError) as caught:
        read_images(path)
    assert str(path) in str(caught.value)
    if name in ("huge", "negative", "beyond the end", "a little beyond"):
        assert "its member 'b.png' claims" in str(caught.value)
        assert "copy it again" in str(caught.value)
