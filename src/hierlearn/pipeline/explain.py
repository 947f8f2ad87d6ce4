"""Explain: the remembered rows that an answer was taken from, with their weights.

The weight of a row is what it contributes to the probabilities of its classes, averaged over the
members of an ensemble; the weights of all neighbors of an answer sum to 1. In a blend they sum to
what its memories count in the answer; the rest comes from networks that remember nothing.

Reasons: the words and cells that an answer rests on, found by leaving them out one at a time.

For models that answer by weights, of texts and of tables. Whatever the network: the same input
without one word, or with one cell missing, is predicted again. The effect of that part is how much
less probable the answer becomes; it is negative where the part speaks against the answer.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.dataset import count_rows
from hierlearn.datasets.tables.table import Table
from hierlearn.errors import HierlearnError, arg
from hierlearn.kernels.cpu import one_core_each
from hierlearn.networks.blend import is_blend, memory_shares
from hierlearn.networks.memories import embed, memory_heads, neighbors_of, remembered
from hierlearn.networks.network import AVERAGE
from hierlearn.training.inference import filled_tile, run_network

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from hierlearn.memory import Remembered
    from hierlearn.pipeline.pipeline import Pipeline

BATCH = 1024


@dataclass(frozen=True)
class Evidence:
    """A remembered row that an answer was taken from.

    Attributes:
        id: of the row.
        weight: its share of the answer, between 0 and 1.
        labels: its most specific labels, by path.
        text: its text where the model reads texts, else None.
        row: its number in the memory, from 0.
    """

    id: str
    weight: float
    labels: tuple[str, ...]
    text: str | None
    row: int


def rows_of(pipeline: Pipeline) -> Remembered:
    """Return what a pipeline remembers; raise where it has no memory."""
    rows = remembered(pipeline.network)
    if rows is None:
        heads = "neighbors" if memory_heads(pipeline.network) else "linear"
        raise HierlearnError(
            "the memory of this model is empty"
            if heads == "neighbors"
            else "this model has no memory: its answers come from weights, not from rows; train it "
            f"again with what is new, or train with {arg('recipe', 'neighbors')}, or "
            f"{arg('head', 'neighbors')}, for "
            "answers with evidence, and rows and classes that are remembered without training"
        )
    return rows


def answering_memories(network: nn.Module, answer: str) -> dict[str, float]:
    """Return the heads with a memory that answer, with what each counts among them all.

    Args:
        network: a network, an ensemble or a blend, which knows its own shares.
        answer: the head that answers, or "average"; then it is the first head with a memory.
    """
    if is_blend(network):
        return memory_shares(network)
    heads = memory_heads(network)
    if answer in heads:
        return {answer: 1.0}
    return dict.fromkeys(list(heads)[:1], 1.0) if answer == AVERAGE else {}


def shares_of(pipeline: Pipeline) -> dict[str, float]:
    """Return the heads whose rows are the evidence, with shares; raise where there are none."""
    shares = answering_memories(pipeline.network, pipeline.answer)
    if not shares:
        memory = next(iter(memory_heads(pipeline.network)), "main")
        raise HierlearnError(
            f"this model answers by its head {pipeline.answer!r}, which is no memory, so no "
            f"remembered row is behind an answer; train with --answer {memory} "
            f"(answer={memory!r} in Python) for answers with evidence"
        )
    return shares


def neighbor_weights(pipeline: Pipeline, inputs: Any) -> Iterator[tuple[Any, Any]]:
    """Yield, for every row of a tile, its neighbors by falling weight: weights, row numbers."""
    rows_of(pipeline)
    network, shares = pipeline.network, shares_of(pipeline)
    read, size = pipeline.rows(inputs), pipeline.tile_size
    queries = embed(network, read if size is None else filled_tile(read, 0, size))
    weighed, numbered = [], []
    for name, share in shares.items():
        weights, index = neighbors_of(network, name, queries[name])
        scaled = weights.double().mul(share / len(weights))
        weighed.append(scaled.transpose(0, 1).flatten(1).cpu().numpy())
        numbered.append(index.transpose(0, 1).flatten(1).cpu().numpy())
    both = np.concatenate(weighed, axis=1), np.concatenate(numbered, axis=1)
    for own, numbers in zip(*(side[: len(read)] for side in both), strict=True):
        rows, first, place = np.unique(numbers, return_index=True, return_inverse=True)
        total = np.bincount(place, own)
        order = np.lexsort((first, -total))  # far rows may all weigh 0; the nearest comes first
        yield total[order], rows[order]


def explain(pipeline: Pipeline, inputs: Any, count: int = 3) -> list[list[Evidence]]:
    """Return the rows that the answer to every input was taken from, the weightiest first.

    Args:
        pipeline: a pipeline with a memory.
        inputs: the raw rows.
        count: how many rows at most.
    """
    if count < 1:
        raise HierlearnError(f"{arg('count')} must be at least 1, not {count}")
    rows = rows_of(pipeline)
    shares_of(pipeline)  # raises where no memory answers
    pipeline.network.eval()
    size = pipeline.tile_size or BATCH

    def explained(tile: Any) -> list[list[Evidence]]:
        found = neighbor_weights(pipeline, tile)
        return [evidence(rows, weights[:count], numbers[:count]) for weights, numbers in found]

    tiles = (inputs[begin : begin + size] for begin in range(0, count_rows(inputs), size))
    with one_core_each if pipeline.tile_size else nullcontext():
        found = run_network(pipeline.network, explained, tiles, threads=pipeline.worker_count)
        return [row for tile in found for row in tile]


def evidence(rows: Remembered, weights: Any, numbers: Any) -> list[Evidence]:
    return [
        Evidence(
            id=str(rows.ids[number]),
            weight=float(weight),
            labels=tuple(labels),
            text=None if rows.texts is None else rows.texts[number],
            row=int(number),
        )
        for weight, number, labels in zip(weights, numbers, rows.labels.names(numbers), strict=True)
    ]


# ---------------------------------------- reasons

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
            whole, *left = [  # a cell that is left out is no surprise
                p
                for inputs in (own, without)
                for block in pipeline.stream_probabilities(inputs, tiled=False)
                for p in block[:, node].tolist()
            ]
            every = [Reason(part, whole - p, p) for part, p in zip(parts, left, strict=True)]
        positive = [one for one in every if one.effect > 0]
        found.append(sorted(positive, key=lambda one: -one.effect)[:count])
    return found


def has_parts(pipeline: Pipeline) -> bool:
    """Whether a pipeline reads texts or tables, whose words and cells can be left out."""
    return pipeline.preprocessor is not None and pipeline.preprocessor.reads in ("texts", "table")


def text_parts(text: str) -> tuple[list[str], list[str]]:
    """Return the different words of a text, and the text without each of them."""
    words = list(dict.fromkeys(match.group().lower() for match in WORD.finditer(text)))
    words = words[:MOST_PARTS]

    def without(word: str) -> str:
        return WORD.sub(lambda one: "" if one.group().lower() == word else one.group(), text)

    return words, list(map(without, words))


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
