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

Predictor: a model folder as a function from a batch of rows to a batch of answers.

Engines that process tables on many machines call such a function: Ray Data, Spark, Dask, or the
processes of Python. It is sent to a worker as the path of the folder and a few options, and reads
the model there when it is first called.

Batches of an engine: dicts of columns, Arrow tables and pandas frames, in and out alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.images import Images
from hierlearn.datasets.tables.arrow import ArrowChunk
from hierlearn.datasets.tables.stream import Chunk, list_column
from hierlearn.datasets.tables.table import is_frame
from hierlearn.datasets.tables.write import CodedColumn, as_arrow
from hierlearn.errors import DataError, HierlearnError, arg, quoted, unknown_name
from hierlearn.hierarchy.names import joined_titles
from hierlearn.pipeline.answers import (
    ClassNames,
    Layout,
    as_doubles,
    kept_names,
    known_columns,
    level_columns,
    long_columns,
    score_columns,
    top_columns,
)
from hierlearn.pipeline.explain import explain, most_neighbors, rows_of
from hierlearn.pipeline.inference import in_order, one_core_each, tile_size, worker_count
from hierlearn.pipeline.missing import MissingCells, checked_missing, place_of
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.training.processes import find_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.pipeline.explain import Evidence
    from hierlearn.pipeline.missing import Missing

    Columns = dict[str, Any]

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


# ---------------------------------------- batch

SOURCE = Path("the batch")  # for errors; rows are counted from 1


@dataclass(frozen=True)
class HeldImage:
    """The bytes of an image in memory.

    Attributes:
        name: what to call it.
        data: the bytes of its file.
    """

    name: str
    data: bytes

    def read(self) -> bytes:
        """Return the bytes."""
        return self.data


def column_names(batch: Any) -> list[str]:
    """Return the columns of a batch; raise on what is none."""
    if isinstance(batch, Mapping):
        return [str(name) for name in batch]
    if hasattr(batch, "schema") and hasattr(batch, "column_names"):
        return list(batch.schema.names)
    if is_frame(batch):
        return [str(name) for name in batch.columns]
    raise DataError(
        f"a batch is a dict of columns, an Arrow table or record batch, or a pandas DataFrame, not "
        f"{type(batch).__name__}"
    )


def batch_chunk(batch: Any, inputs: Mapping[str, Any]) -> Chunk:
    """Return the rows of a batch as a model reads them.

    Args:
        batch: the rows.
        inputs: which columns, as ``known_columns`` names them.
    """
    kind, named = next(iter(inputs.items()))
    names = [named] if isinstance(named, str) else list(named)
    there = column_names(batch)
    lacking = [name for name in names if name not in there]
    if lacking:
        raise DataError(
            f"the batch lacks {quoted(lacking, most=10)}, which the model reads; it has "
            f"{quoted(there, most=10)}"
        )
    columns = {name: arrow_column(batch[name], name) for name in names}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the columns of a batch must have the same length, not {lengths}")
    rows = range(1, next(iter(lengths.values())) + 1)
    chunk = ArrowChunk(SOURCE, columns, rows)
    return Chunk(chunk_inputs(chunk, kind, named) if len(rows) else [], rows)


def chunk_inputs(chunk: ArrowChunk, kind: str, named: Any) -> Any:
    """Return the inputs of rows: of the kind and the columns that ``known_columns`` gives."""
    if kind == "kinds":
        return chunk.table(named)
    if kind == "text":
        return chunk.texts(named)
    if kind == "embeddings":
        return list_column(chunk, named)
    if kind == "image":
        return Images(held_image(chunk, named, row) for row in range(len(chunk)))
    return chunk.numbers(named)


def held_image(chunk: ArrowChunk, name: str, row: int) -> HeldImage:
    """Return the image of a row: bytes, or ``{bytes, path}`` as Hugging Face datasets have it."""
    cell = chunk.columns[name][row].as_py()
    found = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(found, bytes):
        raise DataError(f"{chunk.where(row, name)}: the cell has no bytes of an image")
    return HeldImage(f"row {row + 1}", found)


def arrow_column(cells: Any, name: str) -> Any:
    """Return a column of a batch as an Arrow array, null where a value is missing."""
    try:
        import pyarrow as pa
    except ImportError:
        raise DataError(
            "predicting batches needs pyarrow; install it with: pip install pyarrow"
        ) from None
    if isinstance(cells, (pa.Array, pa.ChunkedArray)):
        return cells
    values = cells.to_numpy() if hasattr(cells, "to_numpy") else cells
    if isinstance(values, np.ndarray) and values.ndim > 1:
        values = list(values.reshape(len(values), -1))
    elif not isinstance(values, np.ndarray):
        values = list(values)
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"column {name!r} of the batch holds values of several types ({reason}); make them one"
        ) from None


def like_batch(batch: Any, kept: Mapping[str, str], answers: Any) -> Any:
    """Return the kept columns and the answers as the kind of thing that a batch is.

    Args:
        batch: the rows.
        kept: the columns that are kept, by their names in the result.
        answers: an Arrow table with as many rows.
    """
    if isinstance(batch, Mapping):
        plain = not any(isinstance(cells, np.ndarray) for cells in batch.values())
        return {name: batch[source] for name, source in kept.items()} | {
            name: column.to_pylist() if plain else column.to_numpy()
            for name, column in zip(answers.column_names, answers.columns, strict=True)
        }
    if not hasattr(batch, "schema"):
        return like_frame(batch, kept, answers)
    import pyarrow as pa

    columns = {name: batch.column(source) for name, source in kept.items()}
    every = {**columns, **dict(zip(answers.column_names, answers.columns, strict=True))}
    if isinstance(batch, pa.RecordBatch):
        whole = {name: one_array(column) for name, column in every.items()}
        return pa.RecordBatch.from_pydict(whole)
    return pa.table(every)


def one_array(column: Any) -> Any:
    """Return a column as one Arrow array."""
    return column.combine_chunks() if hasattr(column, "chunks") else column


def like_frame(batch: Any, kept: Mapping[str, str], answers: Any) -> Any:
    """Return a frame with the index of a batch."""
    sources: Sequence[str] = list(kept.values())
    found = batch[sources].copy()
    found.columns = list(kept)
    for name, column in zip(answers.column_names, answers.columns, strict=True):
        found[name] = column.to_pandas().to_numpy()
    return found


# ---------------------------------------- predictor

ALL = "all"


@dataclass
class Predictor:
    """A model folder as a function: ``Predictor("model")(batch)`` returns a batch with answers.

    A batch is a dict of columns (lists or NumPy arrays), an Arrow table or record batch, or a
    pandas DataFrame; the result is of the same kind, with the kept columns and those of
    ``hierlearn predict``: path, class, title (where classes have titles), probability, level and
    stopped. The answer to a row does not depend on the batch that it is in.

    It can be pickled: the worker that calls it needs the same folder at the same path, and reads it
    once. It computes on one core, so start one worker per core; a backbone uses the threads of
    torch. Several threads may call it at once.

    Args:
        folder: of the model.
        decoder: a name of DECODERS or a Decoder, instead of the model's own.
        decoder_options: the options of a decoder given by name.
        columns: the input columns, where the model does not know them by name or they have another
            name: those of the numbers in order, or the one of texts, images or vectors.
        keep: the columns of a batch that the result has; "all", or their names.
        layout: what else to add of each row: levels, the best classes, all scores.
        neighbors: of how many remembered rows to add columns.
        label_sep: what joins the classes of a set; by default as in training.
        device: where to compute; "auto" is a GPU where there is one.
        trust: whether a network factory outside of hierlearn that the folder names may run.
        missing: "impute" a value that is missing where no training row lacks one, with a warning,
            or "error" to raise.
    """

    folder: Path | str
    decoder: str | Decoder | None = None
    decoder_options: Mapping[str, Any] = field(default_factory=dict)
    columns: str | Sequence[str] | None = None
    keep: str | Sequence[str] = ALL
    layout: Layout = ANSWER
    neighbors: int = 0
    label_sep: str | None = None
    device: str = "auto"
    trust: bool = False
    missing: Missing = "impute"

    def __post_init__(self) -> None:
        checked_missing(self.missing)
        self._model: Model | None = None  # no fields, by which Dask would tell predictors apart
        self._lock = Lock()

    def __call__(self, batch: Any) -> Any:
        """Return the answers to a batch of rows, as a batch of the same kind.

        Raises:
            DataError: naming the column that is missing, or the row and column of a wrong value.
        """
        model = self.model()
        if self.layout.long:
            raise HierlearnError(
                "the long layout numbers the rows of a file, which a batch does not know; leave it "
                "out"
            )
        there = column_names(batch)
        kept = kept_names(there if self.keep == ALL else self._kept(there), model.names)
        chunk = batch_chunk(batch, model.inputs)
        return like_batch(batch, kept, model.table(self.answers([chunk] if chunk.lines else ())))

    def answers(
        self, chunks: Iterable[Chunk], path: Path = SOURCE, before: int = 0
    ) -> Iterator[tuple[Columns, dict[str, Any]]]:
        """Yield the answers to rows in batches, as ``predict_chunks`` does.

        Args:
            chunks: the rows.
            path: their file, for errors.
            before: how many rows come before them.
        """
        model = self.model()
        with one_core_each() if tile_size(model.pipeline) else nullcontext():
            yield from predict_chunks(
                model.pipeline,
                model.decoder,
                chunks,
                path,
                model.label_sep,
                neighbors=self.neighbors,
                layout=self.layout,
                before=before,
            )

    def model(self) -> Model:
        """Return the model, which is read when it is first asked for."""
        with self._lock:
            if self._model is None:
                self._model = Model.load(self)
            return self._model

    def _kept(self, there: Sequence[str]) -> list[str]:
        """Return the columns to keep; raise on one that the batch lacks."""
        names = [self.keep] if isinstance(self.keep, str) else list(self.keep)
        for name in names:
            if name not in there:
                raise DataError(f"the batch: {unknown_name('column', name, there)}")
        return names

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        return {name: state[name] for name in state if name not in ("_model", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()


class Model:
    """What a Predictor reads from its folder.

    Args:
        pipeline: the model.
        options: the predictor.

    Attributes:
        decoder: how it decides.
        inputs: the columns that it reads, by their kind.
        names: the columns of its answers.
        label_sep: what joins the classes of a set.
    """

    def __init__(self, pipeline: Pipeline, options: Predictor) -> None:
        self.pipeline, self.layout = pipeline, options.layout
        self.layout.check(pipeline)
        self.decoder = pipeline.make_decoder(options.decoder, **options.decoder_options)
        self.inputs = chosen_columns(pipeline, options.columns)
        self.label_sep = label_sep_of(pipeline, options.label_sep)
        shown = neighbor_names(pipeline, options.neighbors) if options.neighbors else ()
        own = () if self.layout.long else answer_names(pipeline)
        self.names = (*own, *self.layout.names(pipeline), *shown)
        self._schema: Any = None

    @classmethod
    def load(cls, options: Predictor) -> Model:
        """Read the folder of a predictor."""
        device = find_device(options.device)
        pipeline = Pipeline.load(options.folder, device=device, trust=options.trust)
        pipeline.missing = options.missing
        return cls(pipeline, options)

    def table(self, found: Iterable[tuple[Columns, Any]]) -> Any:
        """Return answers as an Arrow table, whose types are the same for every batch."""
        import pyarrow as pa

        schema = self.schema()
        parts = [
            pa.table({name: as_arrow(columns[name]) for name in self.names}).cast(schema)
            for columns, _ in found
        ]
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def schema(self) -> Any:
        """Return the types of the columns of an answer."""
        import pyarrow as pa

        if self._schema is None:
            p = torch.zeros(1, len(self.pipeline.hierarchy))
            answering = Answering(self.pipeline, self.decoder, self.label_sep, 0, self.layout)
            one = answers(p, self.decoder, self.pipeline, self.label_sep, answering.names)
            one |= answering.further_columns(p)
            of_rows = {True: pa.float64(), False: pa.string()}  # remembered ones
            self._schema = pa.schema(
                (name, pa.array(as_arrow(one[name])).type)
                if name in one
                else (name, of_rows[name.endswith("_weight")])
                for name in self.names
            )
        return self._schema


def chosen_columns(pipeline: Pipeline, named: str | Sequence[str] | None) -> dict[str, Any]:
    """Return the columns that a model reads, by their kind; raise where it does not know them.

    Args:
        pipeline: the model.
        named: the columns that were given; None for those that the model knows.
    """
    ((kind, known),) = known_columns(pipeline).items()
    if named is None:
        if known is None:
            raise HierlearnError(
                "the model does not know its columns by name; give them with columns="
            )
        return {kind: known}
    if kind == "kinds":
        raise HierlearnError("the model knows the columns of its table; leave columns out")
    if kind != "features" and not isinstance(named, str):
        raise HierlearnError(f"the model reads one column ({kind}); give its name as columns=")
    return {kind: [named] if kind == "features" and isinstance(named, str) else named}


def label_sep_of(pipeline: Pipeline, given: str | None = None) -> str:
    """Return what joins several labels: given, or as in training."""
    known: str = pipeline.config.get("columns", {}).get("label_sep", ";")
    found = given or known
    return ";" if found == "none" else found
