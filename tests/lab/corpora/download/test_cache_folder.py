"""Folders that cannot be written, full disks, and where the cache folder is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from download_server import (
    BODY,
    BY_HAND,
    HALF,
    get,
    leave_part,
    names,
    part_of,
    refusal,
)
from hierlearn.files.locations import cache_dir
from hierlearn.lab.corpora import download


def cannot_write(folder, why):
    return (
        f"cannot write rows.arff into {folder}: {why}; set HIERLEARN_CACHE to a folder that can be "
        f"written, or {BY_HAND}"
    )


def test_a_folder_that_is_a_file(server, tmp_path):
    (tmp_path / "cache").write_text("a file")
    target = tmp_path / "cache" / "deeper" / "rows.arff"
    assert refusal(server, target) == cannot_write(target.parent, "Not a directory")
    assert names(tmp_path) == ["cache"]
    assert server.ranges == []


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder(server, target, monkeypatch, code):
    target.parent.mkdir()
    real = os.open

    def refuse(path, flags, *arguments, **options):
        if Path(path).parent == target.parent and flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(code, os.strerror(code), str(path))
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert refusal(server, target) == cannot_write(target.parent, os.strerror(code))
    assert names(target.parent) == []
    assert server.ranges == []


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_without_write_permission(server, target):
    target.parent.mkdir()
    target.parent.chmod(0o500)
    assert refusal(server, target) == cannot_write(target.parent, "Permission denied")
    assert names(target.parent) == []


def test_a_read_only_folder_with_the_right_file_is_fine(server, target, monkeypatch):
    get(server, target)

    def refuse(path, *arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert get(server, target) == target


def test_a_full_disk_keeps_what_arrived(server, target, monkeypatch):
    leave_part(target, BODY[:HALF])
    real = download.open_to_append

    def full(block):
        raise OSError(errno.ENOSPC, "No space left on device")

    def opened(path):
        file = real(path)
        if path == part_of(target):
            file.write = full
        return file

    monkeypatch.setattr(download, "open_to_append", opened)
    assert refusal(server, target) == cannot_write(target.parent, "No space left on device")
    assert part_of(target).read_bytes() == BODY[:HALF]


def test_the_cache_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("HIERLEARN_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == Path("/home/ada/.cache/hierlearn")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert cache_dir() == Path("/scratch/hierlearn")
    monkeypatch.setenv("HIERLEARN_CACHE", "~/data")
    assert cache_dir() == Path("/home/ada/data")
