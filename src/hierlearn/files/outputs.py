"""Outputs: whether a path may be written, decided before any work is done.

Never an input of the same command, by whatever name it goes; never a file that exists, unless
``force`` allows it; never a folder, a device or a FIFO in place of a file. Folders are replaced by
those who know what belongs to them, see ``pipeline.folder`` and ``studies.study``.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hierlearn.files.writing import (
    LONGEST,
    WriteError,
    cannot_write,
    check_name,
    refuse_special,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


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
        raise WriteError(f"{path} exists; pass force=True to replace it")
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
