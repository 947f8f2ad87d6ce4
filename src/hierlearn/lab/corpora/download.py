"""Fetch one file over HTTP: resumed where it broke off, checked, then moved into place.

The bytes go to ``<destination>.part``. Only when their number and their SHA-256 are right is the
file renamed to ``<destination>``, so a reader sees the complete file or none. A file whose SHA-256
is not known is fetched only with ``trust=True``; its hash is then kept in ``<destination>.sha256``
and every later call checks the file against it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from hierlearn.errors import DownloadError, arg
from hierlearn.files.writing import atomic_write, flush, open_to_append, rename

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Progress = Callable[[int, int | None], None]


if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


_BLOCK = 1 << 16


LARGEST = 1 << 34  # bytes of a download, 16 GB: one of unknown size must end somewhere


_PAUSE = 0.5  # seconds before the first retry; doubled before each further one


_PASSING = {408, 429, 500, 502, 503, 504}  # answers that another attempt may change


_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


_SHA256 = re.compile(r"[0-9a-f]{64}")


BY_HAND = f"put the file by hand into a folder named by {arg('data_dir=')} or HIERLEARN_DATA"


class _Broken(Exception):  # noqa: N818  a signal for the retry loop, which words the error
    """The connection failed in a way that another attempt may fix."""

    def __init__(self, reason: str, total: int | None = None) -> None:
        super().__init__(reason)
        self.total = total


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

    Several processes may fetch the same file at once: one downloads, the others wait for it.

    Args:
        url: an http or https address.
        destination: where the file belongs; its folder is made if need be.
        size: the number of bytes, where known.
        sha256: the SHA-256 in hexadecimal, where known.
        trust: accept a file whose SHA-256 is not known, and record the one found.
        timeout: seconds without a byte after which a connection counts as broken.
        retries: how often a broken connection is tried again within this call.
        progress: called with the bytes received and their total, where known; never backwards.

    Returns:
        The destination.

    Raises:
        DownloadError: if the file cannot be downloaded or written, or is not the one expected.
    """
    destination = Path(destination)
    if not _is_http(url):
        raise DownloadError(f"{url!r} is not an http or https address; give one that is")
    if timeout <= 0 or retries < 0:
        raise DownloadError(
            f"timeout {timeout:g} must be more than 0 and retries {retries} at least 0"
        )
    expected = _expected(destination, sha256)
    if expected is None and not trust:
        raise DownloadError(
            f"no SHA-256 is known for {destination.name}, so what {url} sends cannot be checked; "
            f"pass {arg('trust', True)} to accept it and record its hash, or {BY_HAND}"
        )
    if expected is not None and mismatch(destination, size=size, sha256=expected) is None:
        return destination
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with locked(beside(destination, ".lock")):
            _fetch_locked(url, destination, size, sha256, timeout, retries, progress)
    except OSError as error:
        raise DownloadError(
            f"cannot write {destination.name} into {destination.parent}: "
            f"{error.strerror or error}; set HIERLEARN_CACHE to a folder that can be written, "
            f"or {BY_HAND}"
        ) from error
    return destination


def mismatch(path: Path, *, size: int | None, sha256: str | None) -> str | None:
    """Say how a file differs from the one expected, or None where it does not."""
    try:
        length = path.stat().st_size
        if size is not None and length != size:
            return f"has {length} bytes, expected {size}"
        found = _digest(path)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if sha256 is not None and found != sha256.lower():
        return f"has SHA-256 {found}, expected {sha256.lower()}"
    return None


def recorded_sha256(destination: Path) -> str | None:
    """Return the SHA-256 recorded when the file was first trusted, or None."""
    record = beside(destination, ".sha256")
    try:
        words = record.read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DownloadError(f"cannot read {record}: {error.strerror}") from error
    if not words or not _SHA256.fullmatch(words[0]):
        raise DownloadError(f"{record} does not begin with a SHA-256; delete it")
    return words[0]


def _fetch_locked(
    url: str,
    destination: Path,
    size: int | None,
    sha256: str | None,
    timeout: float,
    retries: int,
    progress: Progress | None,
) -> None:
    # Read again: another process may have finished the file while this one waited for the lock.
    expected = _expected(destination, sha256)
    if mismatch(destination, size=size, sha256=expected) is None:
        if expected is None:
            _record(destination, _digest(destination))
        return
    part = beside(destination, ".part")
    try:
        _download(url, part, size, timeout, retries, _never_backwards(progress))
        wrong = mismatch(part, size=size, sha256=expected)
        if wrong is not None:
            part.unlink(missing_ok=True)
            raise _another_file(url, wrong, None if sha256 else beside(destination, ".sha256"))
        if expected is None:
            # Before the rename: a file in place without its record would be trusted twice.
            _record(destination, _digest(part))
        rename(part, destination)
    finally:
        if part.is_file() and part.stat().st_size == 0:
            part.unlink()


def _download(
    url: str, part: Path, size: int | None, timeout: float, retries: int, report: Progress
) -> None:
    """Complete the part file, over several connections if need be."""
    reason = ""
    total = size
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(_PAUSE * 2 ** (attempt - 1))
        try:
            _continue(url, part, size, timeout, report)
            return
        except _Broken as broken:
            reason = str(broken)
            total = broken.total or total
    raise DownloadError(
        f"{url}: {reason}; {part.stat().st_size} of {'unknown' if total is None else total} bytes "
        f"arrived in {retries + 1} attempts; run again to continue from there, or {BY_HAND}"
    )


def _continue(url: str, part: Path, size: int | None, timeout: float, report: Progress) -> None:
    """Append what is still missing to the part file, over one connection."""
    with open_to_append(part) as file:
        received = file.tell()
        if size is not None and received > size:
            received = _restart(file)
        if received == size:
            return
        with _answer(url, received, timeout) as response:
            received, total = _accept(url, response, file, received)
            if total is not None and total > LARGEST:
                _restart(file)
                raise _another_file(url, f"has {total:,} bytes, more than {LARGEST:,}")
            if size is not None and total is not None and total != size:
                _restart(file)
                raise _another_file(url, f"has {total} bytes, expected {size}")
            goal = total if size is None else size
            report(received, goal)
            while block := _block(response, timeout, goal):
                file.write(block)
                received += len(block)
                if size is not None and received > size:
                    _restart(file)
                    raise _another_file(url, f"has more than {size} bytes, expected {size}")
                if received > LARGEST:
                    _restart(file)
                    raise _another_file(url, f"has more than {LARGEST:,} bytes")
                report(received, goal)
        flush(file)
        if goal is not None and received < goal:
            raise _Broken("the connection closed early", goal)


def _accept(url: str, response: Any, file: IO[bytes], received: int) -> tuple[int, int | None]:
    """Judge the answer's status; return where its body begins and the file's total length."""
    if response.status == 200:
        # Either the first bytes, or a server that cannot resume and sends everything again.
        length = response.headers.get("Content-Length", "")
        return _restart(file), int(length) if length.isdigit() else None
    if response.status == 206:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found and int(found[1]) == received:
            return received, None if found[2] == "*" else int(found[2])
    if response.status in (206, 416):
        _restart(file)
        raise _Broken(f"the server could not continue at byte {received}")
    answer = f"the server answered {response.status} {response.reason}"
    if response.status in _PASSING:
        raise _Broken(answer)
    raise DownloadError(f"{url}: {answer}; check the address, or {BY_HAND}")


def _answer(url: str, start: int, timeout: float) -> Any:
    """Ask for the file from byte ``start``; an error status is an answer like any other."""
    headers = {"User-Agent": "hierlearn"}
    if start:
        headers["Range"] = f"bytes={start}-"
    opener = OpenerDirector()
    # The default opener would also follow a redirect to ftp.
    for handler in (
        ProxyHandler,
        HTTPHandler,
        HTTPSHandler,
        HTTPRedirectHandler,
        HTTPErrorProcessor,
        HTTPDefaultErrorHandler,
        UnknownHandler,
    ):
        opener.add_handler(handler())
    try:
        return opener.open(Request(url, headers=headers), timeout=timeout)
    except HTTPError as answer:
        return answer
    except (OSError, HTTPException) as error:
        raise _Broken(_reason(error, timeout)) from error


def _block(response: Any, timeout: float, goal: int | None) -> bytes:
    """Return the next bytes of the body as they arrive, empty at its end."""
    try:
        block: bytes = response.read1(_BLOCK)
    except (OSError, HTTPException) as error:
        raise _Broken(_reason(error, timeout), goal) from error
    return block


def _reason(error: BaseException, timeout: float) -> str:
    """Return why a connection failed."""
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        error = error.reason
    if isinstance(error, TimeoutError):
        return f"no byte came for {timeout:g} s"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return f"the connection failed ({text or type(error).__name__})"


def _another_file(url: str, wrong: str, record: Path | None = None) -> DownloadError:
    """Return the error of a file that is not the one expected, by the table or by a record."""
    remedy = f"delete {record} to trust the file again" if record else "run again to start over"
    return DownloadError(f"{url} {wrong}; what had arrived was deleted: {remedy}, or {BY_HAND}")


def _restart(file: IO[bytes]) -> int:
    """Empty the part file; append mode then writes from its beginning."""
    file.truncate(0)
    return 0


def _never_backwards(progress: Progress | None) -> Progress:
    """Hide from the callback that a server which cannot resume sends bytes a second time."""
    most = -1

    def report(received: int, total: int | None) -> None:
        nonlocal most
        if progress is not None and received > most:
            most = received
            progress(received, total)

    return report


def _is_http(url: str) -> bool:
    try:
        address = urlsplit(url)
    except ValueError:  # an open bracket
        return False
    return address.scheme in ("http", "https") and bool(address.netloc)


def _expected(destination: Path, sha256: str | None) -> str | None:
    return sha256 if sha256 is not None else recorded_sha256(destination)


def _record(destination: Path, found: str) -> None:
    # The format of sha256sum, so that people can check it without hierlearn.
    with atomic_write(beside(destination, ".sha256")) as file:
        file.write(f"{found}  {destination.name}\n")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def beside(path: Path, suffix: str) -> Path:
    """Return the path of a file that accompanies another one."""
    return path.with_name(path.name + suffix)


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """Hold a lock file; the system releases it if the process dies."""
    while True:
        with open_to_append(lock) as file:
            if sys.platform == "win32":
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
            else:
                fcntl.flock(file, fcntl.LOCK_EX)
            # The previous holder removed the file it had locked: then this lock guards nothing.
            if not _is_open_at(file, lock):
                continue
            try:
                yield
            finally:
                with suppress(PermissionError):  # Windows keeps a file that others have open
                    lock.unlink()
            return


def _is_open_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
