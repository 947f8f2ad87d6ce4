"""The log of a training: one JSON line per epoch, and TensorBoard on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.files.records import json_line, read_log
from hierlearn.files.writing import append_text, atomic_write

if TYPE_CHECKING:
    from pathlib import Path


class EpochLog:
    """Epoch records, appended to a file.

    Args:
        path: the file of JSON lines.
        epochs: how many epochs of an earlier run to keep; the lines after them are dropped.
        tensorboard: also write the figures for TensorBoard beside the file.
    """

    def __init__(self, path: Path, *, epochs: int = 0, tensorboard: bool = False) -> None:
        self.path = path
        kept = [record for record in read_log(path) if record["epoch"] <= epochs]
        with atomic_write(path) as file:
            file.writelines(json_line(record) for record in kept)
        self._writer = summary_writer(path.parent / "tensorboard") if tensorboard else None

    def __call__(self, record: dict[str, Any]) -> None:
        """Append the record of an epoch."""
        append_text(self.path, json_line(record))
        if self._writer is not None:
            for name, value in scalars(record).items():
                self._writer.add_scalar(name, value, record["epoch"])
            self._writer.flush()


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """Return the single numbers of a record by name."""
    found = {"learning rate": record["learning_rate"]}
    for name, values in {"loss": record["loss"], **record.get("valid", {})}.items():
        for member, value in enumerate(values):
            if value is not None:  # a member that has stopped
                found[name if len(values) == 1 else f"{name}/{member}"] = value
    for level, value in enumerate(record.get("selected_by_level", ()), start=1):
        found[f"selected/level {level}"] = value
    return found


def summary_writer(folder: Path) -> Any:
    """Return TensorBoard's writer, or raise with what to install."""
    return find_tensorboard()(str(folder))


def find_tensorboard() -> Any:
    """Return the class of TensorBoard's writer, or raise with what to install."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise HierlearnError(
            "TensorBoard is not installed; install it with: pip install tensorboard"
        ) from None
    return SummaryWriter
