"""Formats of images and of vectors: encoded images of many kinds, tar shards, matrices."""

import io
import json
import tarfile

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save

from hierlearn.datasets.images import as_channels, fit_to, open_image, read_images
from hierlearn.files.tensors import read_matrix

MODES = [  # of Pillow, and the format that holds them
    *(("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("RGBA", "PNG"), ("P", "PNG")),
    *(
        ("I;16", "PNG"),
        ("1", "PNG"),
        ("P", "GIF"),
        ("RGB", "BMP"),
        ("RGB", "TIFF"),
        ("RGB", "WEBP"),
    ),
]


def encoded(mode, kind):
    """Return a small image as a file."""
    drawn = np.random.default_rng(0).integers(0, 255, (9, 11, 3), dtype=np.uint8)
    image = Image.fromarray(drawn)
    image = Image.fromarray(drawn[..., 0].astype(np.uint16)) if ";" in mode else image.convert(mode)
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def image_examples():
    return [encoded(mode, kind) for mode, kind in MODES]


def read_image(path, way):
    image = open_image(path.read_bytes())
    fits = ("pad", "crop", "stretch")
    return as_channels(fit_to(image, 8, fits[way % len(fits)]), 1 + 2 * (way % 2))


def shard_examples():
    """Return tar files of images with labels: texts, JSON, and one with odd members."""
    picture = encoded("RGB", "PNG")
    label = json.dumps({"label": "animal/cat"}).encode()
    odd = {"../b.png": picture, "b.cls": b"x" * 3000, "c.json": b"[[", "d.png": b""}
    found = []
    for members in (
        {"a.png": picture, "a.cls": b"animal/dog", "b.png": picture, "b.txt": b"plant"},
        {"a.png": picture, "a.json": label, "train/b.png": picture, "train/b.cls": b"plant/oak"},
        odd,
    ):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        found.append(out.getvalue())
    return [*found, *map(forged, found[:2] * 4, range(8))]


FIELDS = [  # of a header: sizes below zero and beyond every file, in octal and in base 256, types
    *((124, b"\x80" + b"\x7f" * 11), (124, b"\xff" * 11 + b"\x00"), (124, b"77777777777\0")),
    *(
        (156, b"x"),
        (156, b"L"),
        (156, b"S"),
        (136, b"\x80" + b"\x7f" * 11),
        (124, b"-0000000001\0"),
    ),
]


def forged(content, number):
    """Return a tar file with another field in its first header, and a checksum that is right."""
    place, value = FIELDS[number % len(FIELDS)]
    header = bytearray(content[:512])
    header[place : place + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + content[512:]


def read_shard(path, _):
    dataset = read_images(path)
    return [open_image(dataset.inputs.read(row)) for row in range(len(dataset))]


def npy_examples():
    """Return matrices that are fine, and arrays that are none."""
    found = []
    for array in (
        np.arange(12, dtype=np.float32).reshape(4, 3),
        np.asfortranarray(np.ones((3, 2))),
        np.zeros((2, 2), dtype=np.float16),
        np.array([[1.0, np.nan]]),
        np.arange(4),
        np.array([["a", "b"]]),
    ):
        out = io.BytesIO()
        np.save(out, array)
        found.append(out.getvalue())
    return found


def vector_examples():
    matrix = torch.arange(12.0).reshape(4, 3)
    return [
        save({"embeddings": matrix}),
        save({"a": matrix.half(), "b": matrix}),
        save({"x": torch.arange(3)}),
    ]


def read_vectors(path, _):
    return read_matrix(path)
