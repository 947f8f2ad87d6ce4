"""Missing values in columns that had none in training: imputed with a warning, or refused.

A model has learned what a missing value means where training rows lacked some. Elsewhere a number
becomes the mean of its column, a date and a boolean their average, a category one that no training
row has, and a text is empty.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from hierlearn.datasets.dataset import count_rows
from hierlearn.errors import (
    DataError,
    DataWarning,
    HierlearnError,
    arg,
    place,
    plural,
    unknown_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hierlearn.pipeline.pipeline import Pipeline

Missing = Literal["impute", "error"]
CHOICES = ("impute", "error")
MOST_NAMED = 5  # columns of a warning
NEVER_MISSING = (
    "the value is missing, but none was in training, so the model cannot know what that means; "
    "fill it in"
)


class MissingWarning(DataWarning):
    """Values are missing that no training row lacked, and were imputed."""


def place_of(path: object, lines: Sequence[int], row: int, column: str | int) -> str:
    """Word the place of a cell in rows of a file."""
    return place(path, lines[row], column)


class MissingCells:
    """What is missing in the rows of one call, which may come in parts.

    Args:
        pipeline: the model; its ``missing`` says whether to impute or to raise.
        names: of its input columns, where it does not know them.
        learns: whether the model learns from the rows; then nothing is imputed.
    """

    def __init__(self, pipeline: Pipeline, names: Any = None, *, learns: bool = False) -> None:
        self.pipeline, self.learns = pipeline, learns
        self.rows = self.total = 0
        self.columns: Counter[str | int] = Counter()
        known = pipeline.config.get("feature_names") if names is None else names
        self.names = known if known is not None and len(known) else None

    def add(self, inputs: Any, where: Callable[[int, str | int], str] | None = None) -> None:
        """Count what is missing in some rows; raise where that is an error.

        Args:
            inputs: raw rows.
            where: words the place of a cell among them.
        """
        step = self.pipeline.preprocessor
        found = {} if step is None else step.newly_missing(inputs)
        self.total += count_rows(inputs)
        if not found:
            return
        if self.learns or self.pipeline.missing == "error":
            row, column = min((int(rows[0]), column) for column, rows in found.items())
            hint = "" if self.learns else f", or leave out {arg('missing', 'error')}"
            name = self.name(column)
            place = where(row, name) if where else f"row {row} (counted from 0), column {name!r}"
            raise DataError(f"{place}: {NEVER_MISSING}{hint}")
        self.rows += len({row for rows in found.values() for row in rows.tolist()})
        for column, rows in found.items():
            self.columns[self.name(column)] += len(rows)

    def name(self, column: int) -> str | int:
        """Return the name of a column, or its number where it has none."""
        return column if self.names is None else str(self.names[column])

    def warn(self, *, counted: bool = True) -> None:
        """Say how many rows were imputed, and in which columns; nothing where none was.

        Args:
            counted: whether to give numbers; a server repeats itself without them, and Python shows
                a warning once.
        """
        if not self.rows:
            return
        counts = self.columns.most_common() if counted else sorted(self.columns.items(), key=str)
        named = ", ".join(
            f"{name!r} ({count:,})" if counted else repr(name)
            for name, count in counts[:MOST_NAMED]
        )
        if len(counts) > MOST_NAMED:
            named += f" and {plural(len(counts) - MOST_NAMED, 'more column')}"
        lack = "lacks" if counted and self.rows == 1 else "lack"
        rows = f"{self.rows:,} of {plural(self.total, 'row')}" if counted else "rows"
        warnings.warn(
            f"{rows} {lack} a value where every training row has one: {named}; an average, or an "
            f"unseen category, takes its place ({arg('missing', 'error')} refuses such rows)",
            MissingWarning,
            stacklevel=3,
        )


def note_missing(
    pipeline: Pipeline, inputs: Any, names: Any = None, *, learns: bool = False
) -> None:
    """Warn of values of all rows of a call that no training row lacked, or raise."""
    cells = MissingCells(pipeline, names, learns=learns)
    cells.add(inputs)
    cells.warn()


def checked_missing(value: Any) -> Missing:
    """Return how missing values are treated, "impute" for None; raise on anything else."""
    value = CHOICES[0] if value is None else value
    if value not in CHOICES:
        raise HierlearnError(unknown_name("missing", str(value), CHOICES))
    found: Missing = value
    return found
