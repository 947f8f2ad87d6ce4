"""The folder of a model: its files, whether they are intact, and what may be replaced."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.files.tensors import CheckpointError
from hierlearn.pipeline.memory_files import INDEX, MEMORY_FILES
from hierlearn.pipeline.seen_rows import ROWS_FILE

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "hierlearn.model"
VERSION = 2
FILES = ("model.safetensors", "hierarchy.json", "config.json", "README.md")
# By which the folder of a training is recognized.
OURS = ("config.json", "checkpoints", "log.jsonl")


def check_free(folder: Path, force: bool, *, clear: bool = True) -> None:
    """Raise on a folder that is not empty, unless it is a model to be replaced.

    Args:
        folder: where a model should go.
        force: whether a model there may be replaced.
        clear: also remove that model; otherwise only check.
    """
    if folder.is_file():
        raise HierlearnError(f"{folder} is a file; name a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not force:
        raise HierlearnError(
            f"{folder} exists; pass force=True to replace the model in it, or resume=True to resume"
        )
    if not any((folder / name).exists() for name in OURS):
        raise HierlearnError(f"{folder} holds no model, so it is not replaced; name another")
    if not clear:
        return
    indexes = [path.name for path in folder.glob(INDEX.format(head="*", member="*"))]
    for name in (*FILES, *MEMORY_FILES, ROWS_FILE, *indexes, "run.yaml", "log.jsonl"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a model folder whose files are complete and intact."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder with a model in it")
    for name in FILES[:3]:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} has no {name}: it is no model, or an unfinished one")
    try:
        config: dict[str, Any] = json.loads((folder / FILES[2]).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise CheckpointError(f"{folder / FILES[2]} is damaged: it is no JSON") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise CheckpointError(f"{folder / FILES[2]} was not written by hierlearn")
    if config.get("version") != VERSION:
        raise CheckpointError(
            f"{folder / FILES[2]} is of version {config.get('version')}, this hierlearn reads "
            f"version {VERSION}; use the hierlearn that wrote it"
        )
    for name, expected in config["files"].items():
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} has no {name}; copy the whole folder again")
        if digest(folder / name) != expected:
            raise CheckpointError(
                f"{folder / name} is not the file that was saved: it is truncated or of another "
                f"model; copy the whole folder again"
            )
    return config


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
