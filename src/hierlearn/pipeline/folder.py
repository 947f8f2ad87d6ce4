"""The folder of a model: its files, and what may be replaced."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from hierlearn.errors import HierlearnError
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
