"""Where the files of a table are: on this machine, at an address such as s3://, or standard input.

Standard input and output are both called ``-``. What comes in is held in a temporary file, since a
table is read more than once; what goes out is written as it is made.

Nothing here knows a store: fsspec finds the filesystem of an address, and the store's own package
its credentials. These are never shown: an address with a password is refused, and the signature of
a signed one is left out of messages.
"""

from __future__ import annotations

import atexit
import glob
import os
import re
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from hierlearn.errors import DataError
from hierlearn.files.reading import BLOCK, is_file, is_folder
from hierlearn.files.writing import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?:://|::)")  # more than the C: of a drive
PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
SIGNATURE = re.compile(r"\?[^\s?]*=\S*")  # the query of a signed address
PART = re.compile(r"(.+\.(?:xlsx|db|sqlite3?))::(.+)", re.IGNORECASE | re.DOTALL)
Location: TypeAlias = "Path | RemotePath"
LONGEST_REASON = 160  # characters of what a store said


def is_address(source: Location | str) -> bool:
    """Whether a source is an address that fsspec opens, rather than a path."""
    if not isinstance(source, str):
        return isinstance(source, RemotePath)
    is_part = PART.fullmatch(source) is not None and "://" not in source
    return ADDRESS.match(source) is not None and not is_part


def file_and_part(path: Path) -> tuple[Path, str | None]:
    """Return a file and what is named in it: the sheet of ``rows.xlsx::March``, or a table."""
    match = PART.fullmatch(str(path))
    return (path, None) if match is None or path.exists() else (Path(match[1]), match[2])


def as_location(source: Location | str) -> Location:
    """Return a path, or the address that a text is."""
    if isinstance(source, str):
        return RemotePath(source) if is_address(source) else Path(source)
    return source


def without_secrets(text: str) -> str:
    """Return a text without the passwords and signatures of the addresses in it."""
    return SIGNATURE.sub("", PASSWORD.sub("://", text))


class RemotePath:
    """An address, as ``Path`` is the path of a local file.

    Args:
        address: such as ``s3://bucket/rows/a.parquet``.

    Raises:
        DataError: if the address holds a password.
    """

    def __init__(self, address: str) -> None:
        if PASSWORD.search(address):
            raise DataError(
                f"{without_secrets(address)}: the address holds a password, which would be stored "
                f"with the model; set it in the environment or in the configuration of fsspec"
            )
        self.address = address
        self._shown = without_secrets(address)
        path = PurePosixPath(self._shown)
        self.name, self.stem, self.suffix = path.name, path.stem, path.suffix

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"RemotePath({self._shown!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and other.address == self.address

    def __hash__(self) -> int:
        return hash(self.address)

    def filesystem(self) -> tuple[Any, str]:
        protocol = self.address.partition("://")[0].rpartition("::")[2]
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise DataError(f"{self}: {protocol}:// needs `pip install fsspec`") from None
        try:
            opened: tuple[Any, str] = url_to_fs(self.address)
        except ImportError as error:
            from fsspec.registry import known_implementations

            place = str(known_implementations.get(protocol, {}).get("class", ""))
            package = place.partition(".")[0]
            if package in ("", "fsspec"):  # fsspec's own, which needs another package
                cause = error.__cause__ or error.__context__ or error
                named = str(getattr(cause, "name", None) or error.name or protocol)
                package = named.partition(".")[0]
            raise DataError(f"{self}: {protocol}:// needs `pip install {package}`") from None
        except (ValueError, OSError) as error:
            refuse(self, error)
        return opened

    def open(self) -> Any:
        """Open the file for reading bytes, without a cache of fsspec's own."""
        filesystem, path = self.filesystem()
        try:
            return filesystem.open(path, "rb", cache_type="none")
        except Exception as error:
            refuse(self, error)


def refuse(path: RemotePath, error: BaseException) -> NoReturn:
    """Raise the error of an address that cannot be read, in one sentence without secrets.

    The cause is not chained: its text may hold a signature.
    """
    if isinstance(error, FileNotFoundError):
        raise DataError(f"{path}: no such file or folder") from None
    if isinstance(error, PermissionError):
        raise DataError(f"{path}: access denied; check the credentials of the store") from None
    raise DataError(f"{path} cannot be read: {reason_of(error)}") from None


def reason_of(error: BaseException) -> str:
    """Return the first line of an error without secrets, its type where there is none."""
    lines = str(error).strip().splitlines()
    return without_secrets(lines[0])[:LONGEST_REASON] if lines else type(error).__name__


def find_files(source: Location, ending: str) -> list[Location]:
    """Return the files of a folder or a pattern in the order of their names; a file is itself.

    A folder stands for the files directly in it whose names have the ending and begin with neither
    a dot nor an underscore, as the notes do that engines leave beside their files.

    Args:
        source: a file, a folder, or a pattern such as ``rows/*.parquet``.
        ending: of the files in a folder.

    Raises:
        DataError: if a folder or a pattern has no such file.
    """
    files: list[Location]
    if isinstance(source, RemotePath):
        files = list(map(RemotePath, find_remote(source, ending)))
    elif is_folder(source):
        files = [
            source / name for name in tables_in((one.name for one in source.iterdir()), ending)
        ]
    elif glob.has_magic(str(source)) and not is_file(source):
        root = Path(source.anchor)
        files = sorted(root.glob(str(source.relative_to(root))), key=str)
    else:
        return [source]
    if not files:
        raise DataError(
            f"{source}: no file in it ends in {ending}; a pattern such as 'rows/**/*{ending}' "
            f"finds files in deeper folders"
        )
    return files


def find_remote(source: RemotePath, ending: str) -> list[str]:
    """Return the addresses of the files of a folder or a pattern; of a file, its own."""
    filesystem, path = source.filesystem()
    try:
        if "*" in path or "[" in path:  # a ? may begin the query of an address
            names = sorted(filesystem.glob(path))
        elif source.suffix.lower() == ending and not filesystem.isdir(path):
            return [source.address]
        else:
            inside = (
                one["name"] for one in filesystem.ls(path, detail=True) if one["type"] == "file"
            )
            names = tables_in(inside, ending)
    except Exception as error:
        refuse(source, error)
    chained = source.address.rpartition("::")
    return [f"{chained[0]}{chained[1]}{filesystem.unstrip_protocol(name)}" for name in names]


def tables_in(names: Iterable[str], ending: str) -> list[str]:
    """Return the names of tables among those in a folder, sorted."""
    return sorted(
        name
        for name in names
        if name.lower().endswith(ending) and PurePosixPath(name).name[0] not in "._"
    )


# ---------------------------------------- folders of named datasets


def cache_dir() -> Path:
    """Return where downloads go: HIERLEARN_CACHE, else ``hierlearn`` in the user's cache folder."""
    own = os.environ.get("HIERLEARN_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hierlearn"


def own_folders(data_dir: Path | str | None = None) -> dict[str, Path]:
    """Return the folders that the user names, by what names them."""
    named = {"data_dir": data_dir, "HIERLEARN_DATA": os.environ.get("HIERLEARN_DATA")}
    return {origin: Path(folder).expanduser() for origin, folder in named.items() if folder}


def existing_folders(data_dir: Path | str | None = None) -> dict[str, Path]:
    """Return ``own_folders``; raise on one that does not exist."""
    folders = own_folders(data_dir)
    for origin, folder in folders.items():
        if not folder.is_dir():  # a misspelled one must not start a download
            raise DataError(no_folder(origin, folder))
    return folders


def no_folder(origin: str, folder: Path) -> str:
    """Return the message of a folder that does not exist."""
    return f"{origin} names {folder}, which is no folder; correct it or leave it out"


# ---------------------------------------------------------------------- standard input and output

STANDARD = "-"
MOST = 1 << 33  # bytes that are taken in, 8 GB


def is_standard(source: Location | str) -> bool:
    """Whether a source is standard input, or an output standard output."""
    return isinstance(source, (str, Path)) and str(source) == STANDARD


class StandardInput(type(Path())):  # type: ignore[misc]
    """What came in, in a file that errors call standard input.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        if sys.version_info >= (3, 12):
            super().__init__(path)
        self._file = path

    def __str__(self) -> str:
        return "standard input"

    def __fspath__(self) -> str:
        return self._file

    @property
    def name(self) -> str:
        return str(self)

    @property
    def suffix(self) -> str:
        """The ending that tells the format."""
        return Path(self._file).suffix


_held: list[tuple[Any, StandardInput]] = []  # what came in, and from which stream


def standard_input() -> StandardInput:
    """Return what comes in on standard input, which is read to its end once.

    Its first character tells the format: JSON lines begin with ``{``; all else is CSV, or TSV.

    Raises:
        DataError: where nothing comes in, or more than the limit.
    """
    if not _held or _held[0][0] is not sys.stdin:
        _held[:] = [(sys.stdin, take_in(sys.stdin.buffer))]
    return _held[0][1]


def take_in(source: BinaryIO) -> StandardInput:
    """Copy a stream into a temporary file, which is removed when the process ends."""
    first = source.read(BLOCK)
    if not first.strip():
        raise DataError("standard input is empty; pipe a table into the command")
    ending = ".jsonl" if first.lstrip()[:1] == b"{" else ".csv"
    handle, name = tempfile.mkstemp(suffix=ending, prefix="hierlearn-")
    atexit.register(forget, name, os.getpid())
    total = 0
    with os.fdopen(handle, "wb") as file:
        while first:
            total += len(first)
            if total > MOST:
                raise DataError(
                    f"standard input has more than {MOST:,} bytes; write it into a file and name "
                    f"that"
                )
            file.write(first)
            first = source.read(BLOCK)
    return StandardInput(name)


@contextmanager
def standard_output() -> Iterator[Callable[[str], object]]:
    """Yield what writes text to standard output, as UTF-8; where nobody reads it, end quietly."""
    sys.stdout.flush()
    output = sys.stdout.buffer
    try:
        yield lambda text: output.write(text.encode())
        output.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        raise SystemExit(1) from None


def forget(name: str, process: int) -> None:
    """Remove a temporary file, unless this is a child of the process that made it."""
    if os.getpid() == process:
        with suppress(OSError):
            remove(Path(name))
