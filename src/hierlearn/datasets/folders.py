"""The folders in which the files of named datasets are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from hierlearn.errors import DataError


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
