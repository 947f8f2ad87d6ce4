"""Terminal: the one way to it; whatever is printed is escaped here (see printable.py).

Rich's own control codes pass: they are segments apart. Text is neither markup nor emoji codes, so
a class that is called ``[red]`` is shown as it is called.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console as RichConsole
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text as RichText

from hierlearn.errors import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.progress import Progress

PLAIN_LINES = str.maketrans({"├": "|", "└": "`", "│": "|", "─": "-", "…": "..."})


class Console(RichConsole):
    """A console without markup, whose text cannot act on the terminal."""

    def __init__(self, **more: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **more)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """Render, and escape what is no control code of rich itself."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable_lines(text), style)


class Text(RichText):
    """One line of text with a style, escaped before it is measured."""

    def __init__(self, text: object = "", style: Any = "", **more: Any) -> None:
        super().__init__(printable(text), style, **more)

    def append(self, text: Any, style: Any = None) -> Text:
        """Append text."""
        super().append(printable(text) if isinstance(text, str) else text, style)
        return self


class Table(RichTable):
    """A table whose title and cells are escaped before they are measured."""

    def __init__(self, title: str | None = None, **more: Any) -> None:
        shown = None if title is None else printable(title)
        super().__init__(title=shown, title_justify="left", **more)

    def add_column(self, header: Any = "", *rest: Any, **more: Any) -> None:
        """Add a column; line breaks of its header are kept, those of a Text are escaped."""
        header = printable_lines(header) if isinstance(header, str) else header
        super().add_column(header, *rest, **more)

    def add_row(self, *cells: Any, **more: Any) -> None:
        """Add a row; a cell that is a string has no style."""
        super().add_row(*(Text(one) if isinstance(one, str) else one for one in cells), **more)


def print_table(
    console: RichConsole,
    heads: Iterable[Any],
    rows: Iterable[Iterable[Any]],
    title: str | None = None,
    left: int = 1,
) -> None:
    """Print a table, some columns to the left, the others to the right."""
    table = Table(title)
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < left else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def print_plain(console: RichConsole, *lines: str) -> None:
    """Print lines; a line break inside one is escaped, as it came with a name."""
    text = "\n".join(map(printable, lines))
    try:
        text.encode(console.encoding)
    except UnicodeEncodeError:
        text = text.translate(PLAIN_LINES)
    console.print(text, soft_wrap=True)


def print_lines(text: str) -> None:
    """Print text whose line breaks are meant, without a console."""
    print(printable_lines(text))


def complain(text: object) -> None:
    """Print one line on standard error, under the name of the program."""
    print(f"hierlearn: {printable(text)}", file=sys.stderr)


class ProgressLines:
    """Progress where there is no terminal: a line now and then, the first after ``PAUSE`` seconds.

    Then one for every tenth of the work, or after ``SILENCE`` seconds, ``PAUSE`` apart at least.

    Args:
        what: is being done.
        total: how much there is to do; None where that is not known.
    """

    PAUSE, SILENCE = 30.0, 600.0

    def __init__(self, what: str, total: int | None = None, done: int = 0) -> None:
        self.what, self.total, self.done = what, total, done
        self.figures = ""
        self._begun = self._last = time.monotonic()
        self._told: int | None = None

    def update(
        self,
        task: Any = None,
        *,
        completed: int | None = None,
        total: int | None = None,
        figures: str | None = None,
    ) -> None:
        """Take note of progress, and print a line where it is time for one."""
        del task
        self.done = self.done if completed is None else completed
        self.total = self.total if total is None else total
        self.figures = self.figures if figures is None else figures
        now = time.monotonic()
        if now - self._last < self.PAUSE:
            return
        much = self._told is None or not self.total or self.done - self._told >= self.total / 10
        if much or now - self._last >= self.SILENCE:
            complain(self.line(now - self._begun))
            self._last, self._told = now, self.done

    def line(self, seconds: float) -> str:
        """Return what there is to say."""
        share = f" of {self.total:,} ({100 * self.done / self.total:.0f} %)" if self.total else ""
        more = f"; {self.figures}" if self.figures else ""
        return f"{self.what}: {self.done:,}{share} after {seconds:.0f} s{more}"


def progress(console: RichConsole, *columns: str, disable: bool = False) -> Progress:
    """Return a bar that is removed when it ends.

    Args:
        console: where to.
        columns: what follows the bar: "count", "percent", "left", "bytes", "speed", or the name of
            a field of the task, which is a text.
        disable: show nothing.
    """
    from rich import progress as rich

    known = {
        "count": rich.MofNCompleteColumn,
        "percent": rich.TaskProgressColumn,
        "left": rich.TimeRemainingColumn,
        "bytes": rich.DownloadColumn,
        "speed": rich.TransferSpeedColumn,
    }
    shown: list[Any] = [
        known[name]()
        if name in known
        else rich.TextColumn(f"{{task.fields[{name}]}}", markup=False)
        for name in columns
    ]
    first = (rich.TextColumn("{task.description}", markup=False), rich.BarColumn())
    return rich.Progress(*first, *shown, console=console, transient=True, disable=disable)
