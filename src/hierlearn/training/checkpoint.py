"""Checkpoints: the state of a training as one safetensors file, written atomically.

The tensors are those of the network, the optimizer, the best weights and the losses; the header
holds the rest as JSON: the step, the plan, the hierarchy. A checkpoint is written to a temporary
file, flushed to disk and renamed, so if the process is killed or the disk is full, the checkpoint
before it stays intact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from hierlearn.errors import HierlearnError, arg, plural
from hierlearn.files.structured import Extra, Range, check
from hierlearn.files.tensors import CheckpointError, read_tensors, write_tensors
from hierlearn.files.writing import WriteError, remove

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

ENDING = ".safetensors"
FORMAT = "hierlearn.checkpoint"


@dataclass
class Best(Extra):
    """The early stopping of each member, in the header of a checkpoint."""

    value: list[float | None]
    epoch: list[Annotated[int, Range(0)]]
    peak: list[float | None]
    stopped: list[bool]
    improved_last: list[bool]


@dataclass
class Header(Extra):
    """The header of a checkpoint."""

    step: Annotated[int, Range(0)]
    best: Best
    epoch: Annotated[int, Range(0)] = 0


@dataclass(frozen=True)
class Checkpoint:
    """The content of one file."""

    path: Path
    tensors: dict[str, Tensor]
    metadata: dict[str, Any]

    def check(self, members: int, steps: int) -> None:
        """Raise where the header is damaged, or of a training of another size.

        Args:
            members: networks that are trained at once.
            steps: of the whole training.
        """
        check(self.path, self.metadata, Header, CheckpointError)
        for name, values in self.metadata["best"].items():
            if isinstance(values, list) and len(values) != members:
                raise CheckpointError(
                    f"{self.path} does not fit this network, its losses or its optimizer "
                    f"(best.{name} has {plural(len(values), 'member')}, not {members}); train "
                    f"again in another folder"
                )
        if self.metadata["step"] > steps:
            raise CheckpointError(
                f"{self.path} is of step {self.metadata['step']:,}, but this training has {steps:,}"
            )


class Checkpoints:
    """The checkpoints of one training in a folder, the newest few of them.

    Args:
        folder: where they are.
        keep: how many to keep.
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
            before = f"{paths[-1].name} is intact; free" if paths else "free"
            raise WriteError(
                f"cannot write {path.name} into {self.folder}: {error.strerror}; {before} disk "
                f"space and resume with {arg('resume', True)}"
            ) from error
        self.prune()
        return path

    def prune(self) -> None:
        """Remove the oldest checkpoints beyond ``keep``."""
        for old in self.paths()[: -self.keep]:
            remove(old)

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint, or None if there is none yet.

        Raises:
            CheckpointError: if the newest is damaged; the message names the one before it.
        """
        paths = self.paths()
        if not paths:
            return None
        try:
            tensors, metadata = read_tensors(paths[-1])
        except CheckpointError as error:
            before = f"; remove it to resume from {paths[-2].name}" if len(paths) > 1 else ""
            raise CheckpointError(f"{error.message}{before}") from None
        if metadata.get("format") != FORMAT:
            raise CheckpointError(f"{paths[-1]} is not a checkpoint of a training")
        return Checkpoint(paths[-1], tensors, metadata)


def split_parts(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of a checkpoint by part and name: "network/weight" is of "network"."""
    parts: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = value
    return parts


def check_shapes(
    begin: str, tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise unless there are tensors of these names and shapes, and no others.

    Args:
        begin: of the names, for errors.
        tensors: by name.
        expected: their shapes.
    """
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    for name in {**expected, **found}:
        if found.get(name) != expected.get(name):
            raise HierlearnError(
                f"{begin}{name} is {found.get(name, 'absent')}, expected "
                f"{expected.get(name, 'none')}"
            )


# ---------------------------------------- results of a blend


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
