"""Small archives laid out as the real ones, pinned in place of them."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace

import pytest

from hierlearn.lab.corpora.download import locate_archive


def write_zip(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def write_tgz(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def write_wheel(path, members):
    """Write a wheel that pip accepts; its name gives package and release."""
    package, release = path.name.split("-")[:2]
    info = f"{package}-{release}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {release}\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    # Nothing of the package may run or be installed: its Python fits none, its needs do not exist.
    metadata += "Requires-Python: <3\nRequires-Dist: no-such-package-as-this\n"
    members = {
        **members,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": wheel,
        f"{info}/RECORD": "",
    }
    return write_zip(path, members)


def pin(archive, path):
    """Return the archive as it would be pinned if the file at ``path`` were the real one."""
    content = path.read_bytes()
    return replace(archive, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def needs(*archives, data_dir=None):
    """Skip a test of the real files where they are absent."""
    absent = [one.name for one in archives if locate_archive(one, data_dir) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not available; see hierlearn data fetch")


def check_splits(dataset, keys):
    """Every row is in one split, no key in two, and every label trains."""
    rows = [row for own in dataset.splits.values() for row in own]
    assert sorted(rows) == list(range(len(dataset)))
    split_of = {}
    for split, own in dataset.splits.items():
        for row in own:
            for key in keys[row]:
                assert split_of.setdefault(key, split) == split, key
    trained = {label for row in dataset.splits["train"] for label in dataset.labels[row]}
    assert trained == {label for labels in dataset.labels for label in labels}
