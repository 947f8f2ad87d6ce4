"""Checkpoints: the state of a training as one safetensors file, written whole or not at all.

The tensors are those of the network, the optimizer, the best weights and the losses; the header
holds the rest as JSON: where the training is, what was asked for, the hierarchy. A checkpoint is
written to a temporary file, flushed to the disk and renamed, so a process killed at any moment, or
a full disk, leaves the one before it as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.files import WriteError
from hierlearn.files.tensors import CheckpointError, read_tensors, write_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

__all__ = ["Checkpoint", "CheckpointError", "Checkpoints", "optimizer_tensors", "restore_optimizer"]

ENDING = ".safetensors"
FORMAT = "hierlearn.checkpoint"


@dataclass(frozen=True)
class Checkpoint:
    """What one file holds."""

    path: Path
    tensors: dict[str, Tensor]
    metadata: dict[str, Any]


class Checkpoints:
    """The checkpoints of one training in a folder, the newest few of them.

    Args:
        folder: where they are.
        keep: how many stay.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def paths(self) -> list[Path]:
        """Return the checkpoints in the folder, oldest first."""
        return sorted(self.folder.glob(f"step-*{ENDING}"))

    def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> Path:
        """Write a checkpoint, then remove the oldest beyond ``keep``."""
        path = self.folder / f"step-{step:012d}{ENDING}"
        try:
            write_tensors(path, tensors, {"format": FORMAT, **metadata})
        except WriteError as error:
            paths = self.paths()
            before = f"{paths[-1].name} is whole; make" if paths else "make"
            raise WriteError(
                f"cannot write {path.name} into {self.folder}: {error.strerror}; {before} room "
                f"and go on with --resume"
            ) from error
        for old in self.paths()[: -self.keep]:
            old.unlink(missing_ok=True)
        for left in self.folder.glob(f".step-*{ENDING}.*.part"):  # of a process that was killed
            left.unlink(missing_ok=True)
        return path

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint, or None where there is none yet.

        Raises:
            CheckpointError: where the newest is damaged; the message names the one before it.
        """
        paths = self.paths()
        if not paths:
            return None
        try:
            tensors, metadata = read_tensors(paths[-1])
        except CheckpointError as error:
            before = f"; remove it to go on from {paths[-2].name}" if len(paths) > 1 else ""
            raise CheckpointError(f"{error}{before}") from None
        if metadata.get("format") != FORMAT:
            raise CheckpointError(f"{paths[-1]} is no checkpoint of a training")
        return Checkpoint(paths[-1], tensors, metadata)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimizer by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer the state that ``optimizer_tensors`` returned."""
    whole = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({**whole, "state": state})
