"""Blend results: what the trainings of a blend gave, kept until the blend is complete."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hierlearn.files.reading import read_json
from hierlearn.files.tensors import read_tensors, write_tensors
from hierlearn.files.writing import atomic_write
from hierlearn.pipeline.folder import remove_folder

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


@dataclass
class BlendResults:
    """Tensors by key, in a folder or in memory.

    Attributes:
        folder: where; None keeps them in memory.
        in_memory: the tensors, without a folder.
    """

    folder: Path | None = None
    in_memory: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def path(self, key: str) -> Path | None:
        """Return the file of a result."""
        return None if self.folder is None else self.folder / f"{key}.safetensors"

    def __contains__(self, key: str) -> bool:
        path = self.path(key)
        return key in self.in_memory if path is None else path.is_file()

    def get(self, key: str) -> dict[str, Tensor] | None:
        """Return the result of a training; None where it is missing."""
        path = self.path(key)
        if path is None:
            return self.in_memory.get(key)
        return read_tensors(path)[0] if path.is_file() else None

    def put(self, key: str, tensors: dict[str, Tensor], kind: str) -> None:
        """Keep the result of a training, written completely or not at all."""
        path = self.path(key)
        if path is None:
            self.in_memory[key] = tensors
        else:
            write_tensors(path, tensors, {"format": f"hierlearn.{kind}"})


def begin_results(work: Path, identity: dict[str, Any], *, resume: bool) -> BlendResults:
    """Prepare the folder of results, and return it.

    Args:
        work: the folder.
        identity: what must be equal in the run that left results there.
        resume: keep these results; raise where they are of another run.
    """
    from hierlearn.pipeline.train import check_identity

    path = work / "run.json"
    if resume and path.is_file():
        check_identity(path, read_json(path), identity)
        return BlendResults(work)
    remove_folder(work)
    with atomic_write(path) as file:
        file.write(json.dumps(identity))
    return BlendResults(work)
