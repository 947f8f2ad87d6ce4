"""A filesystem of fsspec that notes every range of bytes that is read: ``counted:///tmp/rows``."""

import threading
import time
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

READS = []  # (path, begin, end), of all files
SECONDS = [0.0]  # that every read takes
LOCK = threading.Lock()


class CountedFile(AbstractBufferedFile):
    """A local file, read range by range."""

    def _fetch_range(self, start, end):
        time.sleep(SECONDS[0])
        with Path(self.path).open("rb") as file:
            file.seek(start)
            found = file.read(end - start)
        with LOCK:
            READS.append((self.path, start, end))
        return found


class CountedFileSystem(AbstractFileSystem):
    """Local files behind another protocol."""

    protocol = "counted"
    root_marker = "/"

    def _open(self, path, mode="rb", **options):
        assert mode == "rb"
        return CountedFile(self, path, mode, **{"cache_type": "none", **options})

    def info(self, path, **options):
        return LocalFileSystem().info(self._strip_protocol(path))

    def ls(self, path, detail=True, **options):
        return LocalFileSystem().ls(self._strip_protocol(path), detail=detail)


def register():
    """Make the protocol known to fsspec."""
    fsspec.register_implementation("counted", CountedFileSystem, clobber=True)


def address(path):
    """Return the address of a local file or folder."""
    return f"counted://{path}"


def begin(seconds=0.0):
    """Forget what was read; from now on every read takes so many seconds."""
    register()
    SECONDS[0] = seconds
    READS.clear()


def count():
    """Return how many bytes were read."""
    return sum(end - start for _, start, end in READS)
