"""Reasons: the words and cells that an answer rests on, found by leaving them out one at a time.

For models that answer by weights, of texts and of tables. Whatever the network: the same input
without one word, or with one cell missing, is predicted again. The effect of that part is how much
less probable the answer becomes; it is negative where the part speaks against the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.tables.table import Table
from hierlearn.errors import HierlearnError, arg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hierlearn.pipeline.pipeline import Pipeline

WORD = re.compile(r"\w+(?:['’-]\w+)*")
MOST_PARTS = 200  # of an input; of a longer text the first words are looked at
NOTHING = {"O": "", "M": np.datetime64("NaT"), "f": np.nan}  # what stands for a missing cell


@dataclass(frozen=True)
class Reason:
    """A part of an input, and what the answer is without it.

    Attributes:
        part: a word of a text, or the cell of a table as "column: value".
        effect: how much less probable the answer is without it.
        without: the probability of the answer without it.
    """

    part: str
    effect: float
    without: float


def reasons(
    pipeline: Pipeline, inputs: Any, answers: Sequence[str | None], count: int = 3
) -> list[list[Reason]]:
    """Return the parts of every input that its answer rests on most, the largest effect first.

    Args:
        pipeline: any pipeline that reads texts or a table.
        inputs: the raw rows.
        answers: the class that every row was given, by path; None for no class.
        count: how many parts at most; parts that speak against the answer are left out.
    """
    if count < 1:
        raise HierlearnError(f"{arg('count')} must be at least 1, not {count}")
    if not isinstance(inputs, Table) and not all(isinstance(one, str) for one in inputs):
        raise HierlearnError(
            "reasons are words of texts and cells of tables; this model reads numbers: train with "
            f"{arg('recipe', 'neighbors')}, or {arg('head', 'neighbors')}, for the rows behind an "
            "answer"
        )
    found: list[list[Reason]] = []
    for row, answer in enumerate(answers):
        if answer is None:
            found.append([])
            continue
        own = inputs[row : row + 1]
        node = pipeline.hierarchy.index(answer)
        parts, without = table_parts(own) if isinstance(own, Table) else text_parts(own[0])
        every: list[Reason] = []
        if parts:
            whole, *left = [
                p for one in (own, without) for p in probabilities_of(pipeline, one, node)
            ]
            every = [Reason(part, whole - p, p) for part, p in zip(parts, left, strict=True)]
        positive = [one for one in every if one.effect > 0]
        found.append(sorted(positive, key=lambda one: -one.effect)[:count])
    return found


def probabilities_of(pipeline: Pipeline, inputs: Any, node: int) -> list[float]:
    """Return the probability of a class for every row; a cell that is left out is no surprise."""
    parts = pipeline.stream_probabilities(inputs, tiled=False)
    return [p for part in parts for p in part[:, node].tolist()]


def has_parts(pipeline: Pipeline) -> bool:
    """Whether a pipeline reads texts or tables, whose words and cells can be left out."""
    return pipeline.preprocessor is not None and pipeline.preprocessor.reads in ("texts", "table")


def text_parts(text: str) -> tuple[list[str], list[str]]:
    """Return the different words of a text, and the text without each of them."""
    words = list(dict.fromkeys(match.group().lower() for match in WORD.finditer(text)))
    words = words[:MOST_PARTS]
    return words, [without_word(text, word) for word in words]


def without_word(text: str, word: str) -> str:
    """Return a text without a word, wherever it occurs."""
    return WORD.sub(lambda match: "" if match.group().lower() == word else match.group(), text)


def table_parts(row: Table) -> tuple[list[str], Table]:
    """Return the words of texts and the other cells of a row, and the row without each of them."""
    parts: list[str] = []
    changed: list[tuple[str, Any]] = []  # column, and what it holds instead
    texts = row.named("text")
    for name, column in row.columns.items():
        if row.missing(name)[0]:
            continue
        if name in texts:
            words, without = text_parts(str(column[0]))
            parts += [f"{name}: {word}" for word in words]
            changed += [(name, text) for text in without]
        else:
            parts.append(f"{name}: {shown(column[0])}")
            changed.append((name, NOTHING[column.dtype.kind]))
    parts, changed = parts[:MOST_PARTS], changed[:MOST_PARTS]
    columns = {name: np.repeat(column, len(parts)) for name, column in row.columns.items()}
    for number, (name, value) in enumerate(changed):
        columns[name][number] = value
    return parts, Table(columns, row.kinds, row.ignored, row.order)


def shown(value: Any) -> str:
    """Return a cell as text."""
    return f"{value:g}" if isinstance(value, (float, np.floating)) else str(value)
