"""Images on disk, made with Pillow: one color per class, and all the files that go wrong."""

import io
import tarfile

import numpy as np
from PIL import Image

COLORS = {"warm/red": (220, 30, 30), "warm/orange": (240, 150, 20), "cold/blue": (20, 40, 220)}


def picture(color, size=(20, 16), seed=0, mode="RGB"):
    """Return an image of one color with a little noise."""
    rng = np.random.default_rng(seed)
    values = np.clip(np.array(color) + rng.integers(-20, 20, (size[1], size[0], 3)), 0, 255)
    return Image.fromarray(values.astype(np.uint8)).convert(mode)


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def make_folder(root, count=4, prefix=""):
    """Write ``count`` images of every class below a folder."""
    for place, (name, color) in enumerate(COLORS.items()):
        folder = root / prefix / name
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            picture(color, seed=100 * place + number).save(folder / f"{number:03}.png")
    return root


def add_member(archive, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def make_shard(path, labels, image=None):
    """Write a tar shard: pairs of an image and a .cls file."""
    with tarfile.open(path, "w") as archive:
        for number, label in enumerate(labels):
            content = image or encoded(picture(COLORS[label], seed=number))
            add_member(archive, f"{number:05}.png", content)
            add_member(archive, f"{number:05}.cls", label.encode())
    return path
