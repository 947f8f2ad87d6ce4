"""What a training shows and logs: a bar over its steps, JSON lines per epoch."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hierlearn.files.structured import json_line, read_log
from hierlearn.files.writing import append_text, atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Progress:
    """What a trainer reports to; shows nothing until it has a bar."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def step(self, done: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def total(self, steps: int) -> None:
        """Correct how many steps there are."""
        if self._bar is not None:
            self._bar.update(self._task, total=steps)

    def epoch(self, record: dict[str, Any]) -> None:
        """Show the figures of an epoch."""
        if self._bar is None:
            return
        figures = {"loss": record["loss"], **record.get("valid", {})}
        shown = ", ".join(
            f"{name} {mean(values):.4f}"
            for name, values in figures.items()
            if any(value is not None for value in values)
        )
        self._bar.update(self._task, figures=f"epoch {record['epoch']}: {shown}")


class Overall:
    """One bar over several trainings, each of which counts a number of units.

    Args:
        progress: the bar.

    Attributes:
        done: the units of the trainings that have ended.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.done = 0

    def within(self, units: int, step: int, steps: int) -> None:
        """Show that a training is at a step."""
        self.progress.step(self.done + units * step // max(steps, 1))

    def end(self, units: int) -> None:
        """Show that a training has ended, or is not needed."""
        self.done += units
        self.progress.step(self.done)

    def left(self, units: int) -> None:
        """Correct how many units are left."""
        self.progress.total(self.done + units)


def mean(values: list[float | None]) -> float:
    """Return the mean over the members that have not stopped."""
    running = [value for value in values if value is not None]
    return sum(running) / len(running)


@contextmanager
def progress_bar(what: str, steps: int, done: int = 0, *, show: bool = True) -> Iterator[Progress]:
    """Show a bar on the terminal while training, or a line now and then where there is none."""
    progress = Progress()
    if not show:
        yield progress
        return
    from hierlearn.terminal import Console, ProgressLines
    from hierlearn.terminal import progress as make_bar

    console = Console(stderr=True)
    if not console.is_terminal:
        progress._bar = ProgressLines(what, steps, done)
        yield progress
        return
    with make_bar(console, "count", "left", "figures") as bar:
        progress._bar = bar
        progress._task = bar.add_task(what, total=steps, completed=done, figures="")
        yield progress


class EpochLog:
    """Epoch records, appended to a file.

    Args:
        path: the file of JSON lines.
        epochs: how many epochs of an earlier run to keep; the lines after them are dropped.
    """

    def __init__(self, path: Path, *, epochs: int = 0) -> None:
        self.path = path
        kept = [record for record in read_log(path) if record["epoch"] <= epochs]
        with atomic_write(path) as file:
            file.writelines(json_line(record) for record in kept)

    def __call__(self, record: dict[str, Any]) -> None:
        append_text(self.path, json_line(record))
