"""Predict: the decisions of a model on a table of any size, as columns.

path         the class, or the classes joined by ``label_sep`` where a set is answered
class        the same by bare name
title        of the class, where the hierarchy has titles
probability  of the class
level        of the class; 0 for the root, the answer where not even a top class is sure
stopped      whether the answer is above the terminal classes

and, where asked for, what ``answer_columns`` lists, and the remembered rows that an answer was
taken from, the weightiest first:

neighbor_1_id, neighbor_1_weight, neighbor_1_labels, neighbor_1_titles, neighbor_1_text,
neighbor_2_id, ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.datasets.streaming import Chunk
from hierlearn.errors import DataError, HierlearnError, place
from hierlearn.hierarchy.titles import joined_titles
from hierlearn.pipeline.answer_columns import (
    Layout,
    level_columns,
    long_columns,
    score_columns,
    top_columns,
)
from hierlearn.pipeline.explain import explain, most_neighbors, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.pipeline.explain import Evidence
    from hierlearn.pipeline.pipeline import Pipeline

    Columns = dict[str, list[Any]]

ANSWER = Layout()  # nothing beside the answer
NAMES = ("path", "class", "probability", "level", "stopped")
NEVER_MISSING = (
    "the value is missing, but none was in training, so the model cannot know what that means; "
    "fill it in"
)


def predict_chunks(
    pipeline: Pipeline,
    decoder: Decoder,
    chunks: Iterable[Chunk],
    path: Path,
    label_sep: str = ";",
    *,
    neighbors: int = 0,
    layout: Layout = ANSWER,
) -> Iterator[tuple[Columns, dict[str, Any]]]:
    """Yield the answers of a pipeline in batches: columns by name, and kept columns of the input.

    Rows with ids have them as the first column.

    Args:
        pipeline: the trained pipeline.
        decoder: how it decides.
        chunks: the rows, as ``TableStream`` gives them.
        path: their file, for errors.
        label_sep: what joins the classes of a set.
        neighbors: of how many remembered rows to add columns.
        layout: what else is written of each row.

    Raises:
        DataError: naming the file, line and column of a missing value that was never missing in
            training.
    """
    done = 0
    size = layout.rows_at_once(len(pipeline.hierarchy))
    for chunk, p in probability_chunks(pipeline, chunks, path, size):
        if layout.long:
            columns = long_columns(p, pipeline, layout, done + 1)
        else:
            columns = answers(p, decoder, pipeline, label_sep)
            columns |= further_columns(p, decoder, pipeline, label_sep, layout)
        if neighbors:
            found = explain(pipeline, chunk.inputs, neighbors)
            columns |= neighbor_columns(found, neighbors, label_sep, pipeline.hierarchy)
        kept, ids = chunk.kept, chunk.ids
        if layout.long:
            index = [row - done - 1 for row in columns["row"]]
            kept = {name: taken(cells, index) for name, cells in kept.items()}
            ids = None if ids is None else taken(ids, index)
        yield columns if ids is None else {"id": list(ids), **columns}, dict(kept)
        done += len(p)


def taken(cells: Any, index: list[int]) -> Any:
    """Return some cells of a column: a list, or an Arrow array."""
    return cells.take(index) if hasattr(cells, "take") else [cells[place] for place in index]


def further_columns(
    p: Tensor, decoder: Decoder, pipeline: Pipeline, label_sep: str, layout: Layout
) -> Columns:
    """Return the columns beside the answers."""
    columns: Columns = {}
    if layout.levels:
        columns |= level_columns(p, decoder, pipeline, layout.levels, label_sep)
    if layout.top:
        columns |= top_columns(p, pipeline, layout.top)
    if layout.scores:
        columns |= score_columns(p, pipeline.hierarchy)
    return columns


def explain_chunks(
    pipeline: Pipeline,
    decoder: Decoder,
    chunks: Iterable[Chunk],
    path: Path,
    label_sep: str = ";",
    *,
    count: int = 3,
) -> Iterator[tuple[Chunk, Columns, list[list[Evidence]]]]:
    """Yield rows in batches, with their answers and the remembered rows behind these.

    Args:
        pipeline: a pipeline with a memory.
        decoder: how it decides.
        chunks: the rows.
        path: their file, for errors.
        label_sep: what joins the classes of a set.
        count: how many remembered rows at most.
    """
    for chunk, p in probability_chunks(pipeline, chunks, path):
        columns = answers(p, decoder, pipeline, label_sep)
        yield chunk, columns, explain(pipeline, chunk.inputs, count)


def probability_chunks(
    pipeline: Pipeline, chunks: Iterable[Chunk], path: Path, size: int | None = None
) -> Iterator[tuple[Chunk, Tensor]]:
    """Yield rows in batches, with their (n, C) probabilities.

    Args:
        pipeline: the trained pipeline.
        chunks: the rows.
        path: their file, for errors.
        size: the most rows of a batch; None for as many as are predicted at once.
    """
    for chunk in chunks:
        refuse_missing(pipeline, chunk, path)
        begin = 0
        for predicted in pipeline.stream_probabilities(chunk.inputs):
            for p in torch.split(predicted, size or len(predicted)):
                rows = slice(begin, begin + len(p))
                begin += len(p)
                ids = None if chunk.ids is None else chunk.ids[rows]
                kept = {name: cells[rows] for name, cells in chunk.kept.items()}
                yield Chunk(chunk.inputs[rows], chunk.lines[rows], ids, kept), p


def answer_names(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the columns of an answer; titles are among them where the hierarchy has any."""
    return (*NAMES[:2], "title", *NAMES[2:]) if pipeline.hierarchy.has_titles else NAMES


def neighbor_names(pipeline: Pipeline, count: int) -> tuple[str, ...]:
    """Return the columns of remembered rows; raise where an answer rests on fewer of them."""
    rows = rows_of(pipeline)
    most = min(len(rows), most_neighbors(pipeline))
    if not 1 <= count <= most:
        raise HierlearnError(
            f"explain must lie between 1 and {most:,}, the remembered rows that an answer is taken "
            f"from, not {count:,}"
        )
    titles = ("titles",) if pipeline.hierarchy.has_titles else ()
    kinds = ("id", "weight", "labels", *titles, *(() if rows.texts is None else ("text",)))
    return tuple(f"neighbor_{rank}_{kind}" for rank in range(1, count + 1) for kind in kinds)


def neighbor_columns(
    found: list[list[Evidence]], count: int, label_sep: str, hierarchy: Hierarchy
) -> Columns:
    """Return the columns of ``count`` remembered rows for every answer."""
    columns: Columns = {}
    for number in range(count):
        name = f"neighbor_{number + 1}"
        some = [row[number] for row in found]
        columns[f"{name}_id"] = [one.id for one in some]
        columns[f"{name}_weight"] = [one.weight for one in some]
        columns[f"{name}_labels"] = [label_sep.join(one.labels) for one in some]
        if hierarchy.has_titles:
            columns[f"{name}_titles"] = [
                joined_titles(hierarchy, one.labels, label_sep) for one in some
            ]
        columns[f"{name}_text"] = [one.text for one in some]
    return columns


def refuse_missing(pipeline: Pipeline, chunk: Chunk, path: Path) -> None:
    """Raise on a missing value in a column that had none in training."""
    found = first_missing(pipeline, chunk.inputs)
    if found is not None:
        row, column = found
        raise DataError(f"{place(path, chunk.lines[row], column)}: {NEVER_MISSING}")


def first_missing(pipeline: Pipeline, inputs: Any) -> tuple[int, str] | None:
    """Return row and column of the first value that is missing but never was in training."""
    preprocessor = pipeline.preprocessor
    found = None if preprocessor is None else preprocessor.first_missing(inputs)
    if found is None:
        return None
    row, column = found
    names = pipeline.config.get("feature_names") or range(column + 1)
    return row, str(names[column])


def answers(
    probabilities: Tensor, decoder: Decoder, pipeline: Pipeline, label_sep: str = ";"
) -> Columns:
    """Return the answers to (N, C) probabilities as columns by name, N values each."""
    if decoder.answers == "class":
        found = class_answers(probabilities, decoder(probabilities), pipeline)
    else:
        chosen = decoder.representatives(probabilities)
        found = set_answers(probabilities, chosen, pipeline, label_sep)
    return {name: found[name] for name in answer_names(pipeline)}


def class_answers(probabilities: Tensor, classes: Tensor, pipeline: Pipeline) -> Columns:
    """Return the columns of one class per row; the root has no name and probability 1."""
    p = probabilities.gather(1, classes.clamp_min(0)[:, None]).squeeze(1)
    numbers = classes.tolist()
    names, bare, titles, levels, is_terminal = lookup(pipeline.label_space)
    return {
        "path": [names[number] for number in numbers],
        "class": [bare[number] for number in numbers],
        "title": [titles[number] for number in numbers],
        "probability": p.masked_fill(classes < 0, 1.0).tolist(),
        "level": [levels[number] for number in numbers],
        "stopped": [not is_terminal[number] for number in numbers],
    }


def set_answers(
    probabilities: Tensor, chosen: Tensor, pipeline: Pipeline, label_sep: str
) -> Columns:
    """Return the columns of a set of classes per row, joined by ``label_sep``."""
    names, bare, titles, levels, is_terminal = lookup(pipeline.label_space)
    rows: list[list[int]] = [[] for _ in range(len(chosen))]
    values: list[list[float]] = [[] for _ in range(len(chosen))]
    places = chosen.nonzero()
    found = probabilities[places[:, 0], places[:, 1]].tolist()
    for (row, number), p in zip(places.tolist(), found, strict=True):
        rows[row].append(number)
        values[row].append(p)
    return {
        "path": [label_sep.join(names[one] for one in row) for row in rows],
        "class": [label_sep.join(bare[one] for one in row) for row in rows],
        "title": [label_sep.join(titles[one] for one in row) for row in rows],
        "probability": [label_sep.join(f"{p:.6g}" for p in row) for row in values],
        "level": [label_sep.join(str(levels[one]) for one in row) for row in rows],
        "stopped": [not row or not all(is_terminal[one] for one in row) for row in rows],
    }


def lookup(
    label_space: LabelSpace,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], list[int], list[bool]]:
    """Return names, bare names, titles, levels, which are terminal; the root is at number -1."""
    hierarchy = label_space.hierarchy
    levels = [*hierarchy.levels.tolist(), 0]
    is_terminal = [*label_space.is_terminal.tolist(), False]
    titles = (*(title or "" for title in hierarchy.titles), "")
    return (*hierarchy.names, ""), (*hierarchy.bare_names, ""), titles, levels, is_terminal
