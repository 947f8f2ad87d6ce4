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

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.datasets.tables.write import CodedColumn
from hierlearn.errors import HierlearnError, arg
from hierlearn.hierarchy.names import joined_titles
from hierlearn.pipeline.answer_columns import (
    ClassNames,
    Layout,
    as_doubles,
    level_columns,
    long_columns,
    score_columns,
    top_columns,
)
from hierlearn.pipeline.explain import explain, most_neighbors, rows_of
from hierlearn.pipeline.missing import MissingCells, place_of
from hierlearn.pipeline.threads import in_order, worker_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.datasets.tables.stream import Chunk
    from hierlearn.decoding import Decoder
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline.explain import Evidence
    from hierlearn.pipeline.pipeline import Pipeline

    Columns = dict[str, Any]  # sequences of one length

ANSWER = Layout()  # nothing beside the answer
NAMES = ("path", "class", "probability", "level", "stopped")


def predict_chunks(
    pipeline: Pipeline,
    decoder: Decoder,
    chunks: Iterable[Chunk],
    path: Path,
    label_sep: str = ";",
    *,
    neighbors: int = 0,
    layout: Layout = ANSWER,
    before: int = 0,
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
        before: how many rows come before these, where they are a part of a table.

    Raises:
        DataError: naming the file, line and column of a value that is missing where no training
            row lacks one, if the pipeline's ``missing`` is "error".
    """
    answering = Answering(pipeline, decoder, label_sep, neighbors, layout)
    workers = 0 if neighbors else worker_count(pipeline)
    for found in in_order(answering, batches(pipeline, chunks, path, before), workers):
        yield from found


class Answering:
    """Makes the columns of a batch; several threads may call it at once.

    Args:
        pipeline: the trained pipeline.
        decoder: how it decides.
        label_sep: what joins the classes of a set.
        neighbors: of how many remembered rows to add columns.
        layout: what else is written of each row.
    """

    def __init__(
        self, pipeline: Pipeline, decoder: Decoder, label_sep: str, neighbors: int, layout: Layout
    ) -> None:
        self.pipeline, self.decoder = pipeline, decoder
        self.label_sep, self.neighbors, self.layout = label_sep, neighbors, layout
        self.names = ClassNames(pipeline.label_space)
        self.size = layout.rows_at_once(len(pipeline.hierarchy))

    def __call__(self, batch: tuple[int, Chunk]) -> list[tuple[Columns, dict[str, Any]]]:
        """Return the columns of rows, in parts that are small enough, and their kept columns.

        Args:
            batch: how many rows came before, and the rows.
        """
        before, rows = batch
        found, begin = [], 0
        found_p = probabilities_of(self.pipeline, rows.inputs)
        for p in torch.split(found_p, self.size or len(rows.lines)):
            part = rows.take(slice(begin, begin + len(p)))
            found.append(self.columns(p, part, before + begin))
            begin += len(p)
        return found

    def columns(self, p: Tensor, rows: Chunk, before: int) -> tuple[Columns, dict[str, Any]]:
        """Return the columns of rows, and those that are kept.

        Args:
            p: (n, C) their probabilities.
            rows: the rows.
            before: how many rows came before.
        """
        kept, ids = rows.kept, rows.ids
        if self.layout.long:
            columns = long_columns(p, self.pipeline, self.names, self.layout, before + 1)
            index = columns["row"] - (before + 1)
            kept = {name: taken(cells, index) for name, cells in kept.items()}
            ids = None if ids is None else taken(ids, index)
        else:
            columns = answers(p, self.decoder, self.pipeline, self.label_sep, self.names)
            columns |= self.further_columns(p)
        if self.neighbors:
            found = explain(self.pipeline, rows.inputs, self.neighbors)
            hierarchy = self.pipeline.hierarchy
            columns |= neighbor_columns(found, self.neighbors, self.label_sep, hierarchy)
        return columns if ids is None else {"id": list(ids), **columns}, dict(kept)

    def further_columns(self, p: Tensor) -> Columns:
        """Return the columns beside the answers."""
        columns: Columns = {}
        layout = self.layout
        if layout.levels:
            columns |= level_columns(p, self.decoder, self.names, layout.levels, self.label_sep)
        if layout.top:
            columns |= top_columns(p, self.pipeline, self.names, layout.top)
        if layout.scores:
            columns |= score_columns(p, self.pipeline.hierarchy)
        return columns


def taken(cells: Any, index: NDArray[np.int64]) -> Any:
    """Return some cells of a column: a list, or an Arrow array."""
    return cells.take(index) if hasattr(cells, "take") else [cells[place] for place in index]


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
    pipeline: Pipeline, chunks: Iterable[Chunk], path: Path
) -> Iterator[tuple[Chunk, Tensor]]:
    """Yield rows in batches, with their (n, C) probabilities.

    Args:
        pipeline: the trained pipeline.
        chunks: the rows.
        path: their file, for errors.
    """
    for _, batch in batches(pipeline, chunks, path):
        yield batch, probabilities_of(pipeline, batch.inputs)


def probabilities_of(pipeline: Pipeline, inputs: Any) -> Tensor:
    """Return (n, C) probabilities of a batch, whose missing values are counted already."""
    return torch.cat([*pipeline.stream_probabilities(inputs)])


def batches(
    pipeline: Pipeline, chunks: Iterable[Chunk], path: Path, before: int = 0
) -> Iterator[tuple[int, Chunk]]:
    """Yield rows in the batches in which they are predicted, each after how many came before.

    Values that are missing where none was in training are counted, and warned of once.
    """
    done = before
    size = pipeline.batch_size()
    cells = MissingCells(pipeline)
    for chunk in chunks:
        cells.add(chunk.inputs, partial(place_of, path, chunk.lines))
        count = len(chunk.lines)
        for begin in range(0, count, size):
            yield done + begin, chunk.take(slice(begin, min(begin + size, count)))
        done += count
    cells.warn()


def answer_names(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the columns of an answer; titles are among them where the hierarchy has any."""
    return (*NAMES[:2], "title", *NAMES[2:]) if pipeline.hierarchy.has_titles else NAMES


def neighbor_names(pipeline: Pipeline, count: int) -> tuple[str, ...]:
    """Return the columns of remembered rows; raise where an answer rests on fewer of them."""
    rows = rows_of(pipeline)
    most = min(len(rows), most_neighbors(pipeline))
    if not 1 <= count <= most:
        raise HierlearnError(
            f"{arg('explain')} must lie between 1 and {most:,}, the remembered rows that an answer "
            "is taken "
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


def answers(
    probabilities: Tensor,
    decoder: Decoder,
    pipeline: Pipeline,
    label_sep: str = ";",
    names: ClassNames | None = None,
) -> Columns:
    """Return the answers to (N, C) probabilities as columns by name, N values each.

    Args:
        probabilities: of the rows.
        decoder: how to decide.
        pipeline: the model.
        label_sep: what joins the classes of a set.
        names: what is written of each class; by default made here.
    """
    names = names or ClassNames(pipeline.label_space)
    if decoder.answers == "class":
        found = class_answers(probabilities, decoder(probabilities), names)
    else:
        chosen = decoder.representatives(probabilities)
        found = set_answers(probabilities, chosen, names, label_sep)
    return {name: found[name] for name in answer_names(pipeline)}


def first_classes(probabilities: Tensor, decoder: Decoder) -> list[str | None]:
    """Return the class of each answer, of a set the first one; None where there is none."""
    names = decoder.hierarchy.names
    if decoder.answers == "class":
        return [names[one] if one >= 0 else None for one in decoder(probabilities).tolist()]
    chosen = decoder.representatives(probabilities)
    first = chosen.int().argmax(dim=1).tolist()
    some = chosen.any(dim=1).tolist()
    return [names[one] if there else None for one, there in zip(first, some, strict=True)]


def class_answers(probabilities: Tensor, classes: Tensor, names: ClassNames) -> Columns:
    """Return the columns of one class per row; the root has no name and probability 1."""
    p = probabilities.gather(1, classes.clamp_min(0)[:, None]).squeeze(1)
    codes = names.codes(classes)
    return {
        "path": CodedColumn(names.paths, codes),
        "class": CodedColumn(names.bare, codes),
        "title": CodedColumn(names.titles, codes),
        "probability": as_doubles(p.masked_fill(classes < 0, 1.0)),
        "level": CodedColumn(names.levels, codes),
        "stopped": CodedColumn(names.stopped, codes),
    }


def set_answers(
    probabilities: Tensor, chosen: Tensor, names: ClassNames, label_sep: str
) -> Columns:
    """Return the columns of a set of classes per row, joined by ``label_sep``."""
    rows: list[list[int]] = [[] for _ in range(len(chosen))]
    values: list[list[float]] = [[] for _ in range(len(chosen))]
    places = chosen.nonzero()
    found = probabilities[places[:, 0], places[:, 1]].tolist()
    for (row, number), p in zip(places.tolist(), found, strict=True):
        rows[row].append(number)
        values[row].append(p)
    return {
        "path": [label_sep.join(names.paths[one] for one in row) for row in rows],
        "class": [label_sep.join(names.bare[one] for one in row) for row in rows],
        "title": [label_sep.join(names.titles[one] for one in row) for row in rows],
        "probability": [label_sep.join(f"{p:.6g}" for p in row) for row in values],
        "level": [label_sep.join(str(names.levels[one]) for one in row) for row in rows],
        "stopped": [not row or any(names.stopped[one] for one in row) for row in rows],
    }
