"""Trial files: the values of trials in ``trials/`` of a study, one file each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hierlearn.errors import DataError
from hierlearn.files.reading import read_json
from hierlearn.files.writing import atomic_write, is_empty

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TRIALS = "trials"


def trial_path(folder: Path, key: str) -> Path:
    """Return the file of a trial, by a digest of all that it depends on."""
    return folder / TRIALS / f"{key}.json"


def read_value(path: Path) -> float | None:
    """Return the value of a trial; None where it had no finite one."""
    found = read_json(path)
    value = found.get("value", "") if isinstance(found, dict) else ""
    if not isinstance(value, (int, float, type(None))):
        raise DataError(f"{path} is damaged: it holds no value of a trial; remove it")
    return None if value is None else float(value)


def write_value(path: Path, about: Mapping[str, Any], value: float | None) -> None:
    """Write the value of a trial, completely or not at all."""
    with atomic_write(path) as file:
        file.write(json.dumps({**about, "value": value}) + "\n")


def only_trials(folder: Path) -> bool:
    """Whether a folder is empty or absent, but for the trials of a study that is yet to begin."""
    trials = folder / TRIALS
    if is_empty(folder) or not trials.is_dir():
        return is_empty(folder)
    others = [one for one in folder.iterdir() if one != trials and not one.name.startswith(".")]
    return not others and all(one.suffix == ".json" for one in trials.iterdir())
