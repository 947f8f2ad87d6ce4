"""Writing: every file is written here, complete or not at all.

A file is written beside its path under a hidden name that nobody can guess, flushed to disk and
renamed, so a process that is killed or a full disk leaves what was there. The hidden file is locked
(``flock``) while it is written: one that nobody holds was left behind by a killed process, and is
removed by the next write into the folder.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import signal
import stat
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, arg

try:
    import fcntl
except ImportError:  # Windows
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


HIDDEN = ".hierlearn-"
STRAY = re.compile(r"\.hierlearn-[0-9a-f]{16}\.(part|new)")  # a file or a folder
LONGEST = 80  # letters of a name in a message
EXCLUSIVE = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
APPENDING = (EXCLUSIVE & ~os.O_EXCL) | os.O_APPEND
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
KINDS = {
    "a FIFO": stat.S_ISFIFO,
    "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
    "a socket": stat.S_ISSOCK,
}
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class WriteError(HierlearnError, OSError):
    """A file cannot be written at its path."""


@contextmanager
def atomic_write(path: Path | str, mode: str = "w") -> Iterator[IO[Any]]:
    """Write to a hidden file beside ``path`` and rename it when the block ends without error.

    A symbolic link at ``path`` is replaced, not followed.

    Raises:
        WriteError: naming the file, its folder and the reason.
    """
    path = Path(path)
    refuse_special(path)
    temporary = path.with_name(hidden_name("part"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_strays(path.parent)
        with os.fdopen(create(temporary), mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            flush(file)
            if HAS_LOCKS:  # while it is held, or it could be taken for left behind
                rename(temporary, path)
        if not HAS_LOCKS:
            rename(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, WriteError):
            raise cannot_write(path, error) from error
        raise


def append_text(path: Path, text: str) -> None:
    """Append to a file; a text that does not fit leaves the file as it was.

    Raises:
        WriteError: naming the file, its folder and the reason.
    """
    try:
        refuse_special(path)
        with os.fdopen(os.open(path, APPENDING, 0o666), "ab") as file:
            handle = file.fileno()
            size = os.fstat(handle).st_size
            try:
                append(handle, text.encode())
            except OSError:
                with suppress(OSError):
                    os.ftruncate(handle, size)
                raise
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        raise cannot_write(path, error) from error


@contextmanager
def new_folder(parent: Path) -> Iterator[Path]:
    """Make a hidden folder; it is removed at the end of the block unless it was renamed."""
    parent.mkdir(parents=True, exist_ok=True)
    remove_strays(parent)
    folder, handle = hold_folder(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


# ---------------------------------------- single steps


def create(path: Path) -> int:
    """Create a file that does not exist, with the permissions that the umask says, and hold it."""
    while True:
        handle = os.open(path, EXCLUSIVE, 0o666)
        hold(handle)
        if os.fstat(handle).st_nlink:  # nobody took it for left behind before it was held
            return handle
        os.close(handle)


def hold_folder(parent: Path) -> tuple[Path, int | None]:
    """Make a hidden folder, and hold it."""
    while True:
        folder = parent / hidden_name("new")
        folder.mkdir()
        if not HAS_LOCKS:
            return folder, None
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            hold(handle)
            if folder.exists():
                return folder, handle
            os.close(handle)


def hold(handle: int) -> None:
    """Lock what is being written, where the system can."""
    if HAS_LOCKS:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)


def flush(file: IO[Any]) -> None:
    """Write to disk what was written to a file."""
    file.flush()
    os.fsync(file.fileno())


def append(handle: int, data: bytes) -> None:
    """Write bytes to the end of an open file."""
    while data:
        data = data[os.write(handle, data) :]


def rename(source: Path, target: Path) -> None:
    """Give a file or a folder its name, replacing a file that has it."""
    source.replace(target)
    sync_folder(target.parent)


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ---------------------------------------- what was left behind


def hidden_name(ending: str) -> str:
    """Return a name that nobody can guess."""
    return f"{HIDDEN}{secrets.token_hex(8)}.{ending}"


def remove_strays(folder: Path) -> None:
    """Remove what killed processes of hierlearn left in a folder, and nothing else."""
    for entry in strays(folder):  # held while it is removed: who creates it waits, and sees it gone
        with suppress(OSError):
            if entry.suffix == ".new":
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink()


def strays(folder: Path) -> Iterator[Path]:
    """Yield what killed processes of hierlearn left in a folder, and hold each meanwhile."""
    for path in sorted(folder.glob(f"{HIDDEN}*")) if HAS_LOCKS else ():
        right = stat.S_ISDIR if path.suffix == ".new" else stat.S_ISREG
        if not STRAY.fullmatch(path.name):
            continue
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            found = os.fstat(handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if right(found.st_mode) and found.st_uid == os.geteuid():
                yield path
        except OSError:
            pass  # somebody writes it, or nobody can tell
        finally:
            os.close(handle)


def is_empty(folder: Path) -> bool:
    """Whether a folder is absent, or holds nothing but what killed processes left."""
    if not folder.is_dir():
        return not folder.exists()
    left = {path.name for path in strays(folder)}
    return all(path.name in left for path in folder.iterdir())


# ---------------------------------------- errors


def refuse_special(path: Path) -> None:
    """Raise where a folder, a device, a FIFO or a socket is, or a name that no file can have."""
    check_name(path)
    if not path.name:
        raise WriteError(f"cannot write to {path}, which is a folder; name a file in it")
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise cannot_write(path, error) from None
    if stat.S_ISDIR(mode):
        raise WriteError(f"cannot write to {path}, which is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        what = next((name for name, test in KINDS.items() if test(mode)), "no regular file")
        raise WriteError(f"cannot write to {path}, which is {what}; name a regular file")


def check_name(path: Path) -> None:
    """Raise on a name that no file can have, or that no text can hold."""
    text = str(path)
    if "\0" in text:
        raise WriteError(f"the name {shortened(text)!r} holds a NUL character; name another file")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise WriteError(f"the name {shortened(text)!r} is not UTF-8; name another file") from None


def cannot_write(path: Path, error: OSError) -> WriteError:
    """Return the error of a file that cannot be written, without naming temporary files."""
    not_a_folder = isinstance(error, (FileExistsError, NotADirectoryError))
    reason = "that is no folder" if not_a_folder else error.strerror or str(error)
    remedy = "name a file in a folder that you can write to"
    if error.errno in FULL:
        remedy = "free disk space and try again"
    folder = shortened(str(path.parent), 4 * LONGEST)
    failure = WriteError(f"cannot write {shortened(path.name)} into {folder}: {reason}; {remedy}")
    failure.strerror = reason
    return failure


def shortened(name: str, most: int = LONGEST) -> str:
    """Return a name that is short enough for a message."""
    return name if len(name) <= most else f"{name[:most]}..."


# ----------------------------------------------------------------------
# Outputs: whether a path may be written, decided before any work is done.
#
# Never an input of the same command, by whatever name it goes; never a file that exists, unless
# ``force`` allows it; never a folder, a device or a FIFO in place of a file. Folders are replaced
# by those who know what belongs to them, see ``pipeline.folder`` and ``studies.study``.


def check_output(path: Path | str, force: bool, inputs: Iterable[Path | str] = ()) -> None:
    """Raise unless a file may be written at a path.

    Args:
        path: the file.
        force: whether a file that exists may be replaced.
        inputs: files and folders that are read; neither they nor files in them are replaced.
    """
    path = Path(path)
    refuse_special(path)
    exists = os.path.lexists(path)
    for one in map(Path, inputs):
        if is_same(path, one):
            raise WriteError(f"{path} is an input; write to another file")
        if exists and one.is_dir() and is_inside(path, one):
            raise WriteError(f"{path} is a file of the input {one}; write to another file")
    if exists and not force:
        raise WriteError(f"{path} exists; pass {arg('force', True)} to replace it")
    check_writable(path)


def check_output_folder(path: Path | str, force: bool, inputs: Iterable[Path | str] = ()) -> None:
    """Raise unless files may be written into a folder.

    Args:
        path: the folder; it need not exist.
        force: whether files in it may be replaced; then none of them may be an input.
        inputs: files and folders that are read.
    """
    path = Path(path)
    check_name(path)
    try:
        is_file = os.path.lexists(path) and not path.is_dir()
    except OSError as error:
        raise cannot_write(path, error) from None
    if is_file:
        raise WriteError(f"{path} is a file; name a folder")
    for one in map(Path, inputs):
        if is_same(path, one):
            raise WriteError(f"{path} is an input; write to another folder")
        if force and path.is_dir() and one.exists() and is_inside(one, path):
            raise WriteError(
                f"{one} is an input and lies in {path}, where files are replaced; move it, or "
                f"write to another folder"
            )
    try:
        try_writing(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(
            f"cannot write into {shortened(str(path), 4 * LONGEST)}: {reason}; name a folder that "
            f"you can write to"
        ) from None


def check_writable(*paths: Path | str) -> None:
    """Raise on paths that cannot be written, before any work is done; nothing is left behind."""
    for path in map(Path, paths):
        refuse_special(path)
        try:
            try_writing(path.parent)
        except OSError as error:
            raise cannot_write(path, error) from None


def try_writing(folder: Path) -> None:
    """Make a file without a name in a folder, or where it would be made."""
    above = folder.absolute()
    with tempfile.TemporaryFile(dir=next(one for one in (above, *above.parents) if one.exists())):
        pass


def is_same(first: Path, second: Path) -> bool:
    """Whether two paths are one file or folder, also by hard or symbolic links."""
    try:
        return first.samefile(second)
    except (OSError, ValueError):
        return False


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path is somewhere in a folder, by its place or by what it points to."""
    inside = folder.resolve()
    places = (path.resolve(), path.parent.resolve() / path.name)
    return any(inside in place.parents for place in places)


# ----------------------------------------------------------------------
# Uninterrupted: a few renames that belong together, which Ctrl-C and SIGTERM wait for.


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back signals until the block ends; only the main thread receives any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {one: signal.getsignal(one) for one in SIGNALS}
    for one in SIGNALS:
        if before[one] not in (signal.SIG_IGN, None):
            signal.signal(one, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for one, handler in before.items():
            if handler is not None:
                signal.signal(one, handler)
        for number in received[:1]:
            signal.raise_signal(number)


# ----------------------------------------------------------------------
# Locks: one process at a time changes a folder.
#
# The folder itself is locked (``flock``), so no file is left behind and the lock of a process that
# is killed is gone with it. Where the file system has no such locks, nothing is locked.

WAIT = 60.0  # seconds for another process to end
PAUSE = 0.02  # seconds between two looks


@dataclass
class Held:
    """The lock of a folder in this process; a thread may take it again."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    depth: int = 0
    handle: int | None = None


GUARD = threading.Lock()
FOLDERS: dict[tuple[int, int], Held] = {}  # by device and inode


class BusyError(HierlearnError):
    """Another process changes a folder."""


@contextmanager
def locked(folder: Path, seconds: float = WAIT) -> Iterator[None]:
    """Let no other process or thread into the same block with the same folder.

    Args:
        folder: which exists.
        seconds: how long to wait for others.

    Raises:
        BusyError: when they take longer.
    """
    stat = folder.stat()
    with GUARD:
        own = FOLDERS.setdefault((stat.st_dev, stat.st_ino), Held())
    end = time.monotonic() + seconds
    if not own.lock.acquire(timeout=seconds):
        raise busy(folder, seconds)
    own.depth += 1
    try:
        if own.depth == 1 and HAS_LOCKS:
            with suppress(OSError):
                own.handle = os.open(folder, os.O_RDONLY)
        while own.depth == 1 and own.handle is not None:
            try:
                fcntl.flock(own.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise busy(folder, seconds) from None
                time.sleep(PAUSE)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        own.depth -= 1
        if own.depth == 0 and own.handle is not None:  # blocks need not end in the order of entry
            with suppress(OSError):
                fcntl.flock(own.handle, fcntl.LOCK_UN)  # children may hold copies of the handle
            os.close(own.handle)
            own.handle = None
        own.lock.release()


def busy(folder: Path, seconds: float) -> BusyError:
    """Return the error of a folder that others change."""
    return BusyError(
        f"{folder} is being changed by another process, for more than {seconds:g} s; wait until "
        f"it has ended, and try again"
    )
