"""Predict: the answers of a model to a table of any size; Predictor: a folder as a function.

Engines that process tables on many machines call such a function from a batch of rows to a batch of
answers: Ray Data, Spark, Dask, or the processes of Python. It is sent to a worker as the path of
the folder and a few options, and reads the model there when it is first called. Batches are dicts
of columns, Arrow tables and pandas frames, in and out alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.images import Images
from hierlearn.datasets.tables.arrow import ArrowChunk
from hierlearn.datasets.tables.stream import Chunk, list_column
from hierlearn.datasets.tables.write import as_arrow
from hierlearn.errors import DataError, HierlearnError, quoted, unknown_name
from hierlearn.hierarchy.names import is_frame
from hierlearn.kernels.cpu import one_core_each
from hierlearn.pipeline.answers import (
    ANSWER_ONLY,
    AnswerFormatter,
    Layout,
    kept_names,
    known_columns,
    label_sep_of,
)
from hierlearn.pipeline.missing import MissingCells, checked_missing, place_of
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.training.inference import run_network
from hierlearn.training.processes import find_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor

    from hierlearn.decoding import Decoder
    from hierlearn.pipeline.missing import Missing

    Columns = dict[str, Any]


def batches(
    pipeline: Pipeline, chunks: Iterable[Chunk], path: Path, before: int = 0
) -> Iterator[tuple[int, Chunk]]:
    """Yield rows in the batches in which they are predicted, each after how many came before.

    Values that are missing where none was in training are counted, and warned of once.
    """
    size, cells = pipeline.batch_size(), MissingCells(pipeline)
    for chunk in chunks:
        cells.add(chunk.inputs, partial(place_of, path, chunk.lines))
        count = len(chunk.lines)
        for begin in range(0, count, size):
            yield before + begin, chunk.take(slice(begin, min(begin + size, count)))
        before += count
    cells.warn()


def probability_chunks(
    pipeline: Pipeline, chunks: Iterable[Chunk], path: Path
) -> Iterator[tuple[Chunk, Tensor]]:
    """Yield rows in batches, with their (n, C) probabilities; errors name ``path``, their file."""
    for _, batch in batches(pipeline, chunks, path):
        yield batch, torch.cat([*pipeline.stream_probabilities(batch.inputs)])


def predict_chunks(
    formatter: AnswerFormatter, chunks: Iterable[Chunk], path: Path, before: int = 0
) -> Iterator[tuple[Columns, dict[str, Any]]]:
    """Yield the answers of a pipeline in batches: columns by name, and kept columns of the input.

    Rows with ids have them as the first column.

    Args:
        formatter: of the answers.
        chunks: the rows, as ``TableStream`` gives them.
        path: their file, for errors.
        before: how many rows come before these, where they are a part of a table.

    Raises:
        DataError: naming the file, line and column of a value that is missing where no training
            row lacks one, if the pipeline's ``missing`` is "error".
    """
    pipeline, is_long = formatter.pipeline, formatter.layout.long

    def answered(batch: tuple[int, Chunk]) -> list[tuple[Columns, dict[str, Any]]]:
        """Return the columns of rows, in parts that are small enough, and their kept columns."""
        first, rows = batch
        found, begin = [], 0
        every = torch.cat([*pipeline.stream_probabilities(rows.inputs)])
        for p in torch.split(every, formatter.rows_at_once or len(rows.lines)):
            part = rows.take(slice(begin, begin + len(p)))
            kept, ids = dict(part.kept), part.ids
            if is_long:
                columns = formatter.long_columns(p, first + begin + 1)
                index = columns["row"] - (first + begin + 1)
                kept = {name: select_rows(cells, index) for name, cells in kept.items()}
                ids = None if ids is None else select_rows(ids, index)
            else:
                columns = formatter(p, part.inputs)
            found.append((columns if ids is None else {"id": list(ids), **columns}, kept))
            begin += len(p)
        return found

    threads = 0 if formatter.neighbors else pipeline.worker_count
    rows = batches(pipeline, chunks, path, before)
    for found in run_network(pipeline.network, answered, rows, threads=threads):
        yield from found


def select_rows(cells: Any, index: Any) -> Any:
    """Return some cells of a column: a list, or an Arrow array."""
    return cells.take(index) if hasattr(cells, "take") else [cells[place] for place in index]


# ---------------------------------------- batches of engines

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
    if not len(rows):
        return Chunk([], rows)
    if kind == "image":
        images = []
        for row in range(len(chunk)):  # bytes, or {bytes, path} as Hugging Face datasets have it
            cell = columns[named][row].as_py()
            data = cell.get("bytes") if isinstance(cell, dict) else cell
            if not isinstance(data, bytes):
                raise DataError(f"{chunk.where(row, named)}: the cell has no bytes of an image")
            images.append(HeldImage(f"row {row + 1}", data))
        return Chunk(Images(images), rows)
    if kind == "embeddings":
        return Chunk(list_column(chunk, named), rows)
    if kind == "kinds":
        return Chunk(chunk.table(named), rows)
    return Chunk(chunk.texts(named) if kind == "text" else chunk.numbers(named), rows)


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
    made = dict(zip(answers.column_names, answers.columns, strict=True))
    if isinstance(batch, Mapping):
        plain = not any(isinstance(cells, np.ndarray) for cells in batch.values())
        return {name: batch[source] for name, source in kept.items()} | {
            name: column.to_pylist() if plain else column.to_numpy()
            for name, column in made.items()
        }
    if not hasattr(batch, "schema"):  # a frame, whose index stays
        frame = batch[list(kept.values())].copy()
        frame.columns = list(kept)
        for name, column in made.items():
            frame[name] = column.to_pandas().to_numpy()
        return frame
    import pyarrow as pa

    columns = {**{name: batch.column(source) for name, source in kept.items()}, **made}
    if not isinstance(batch, pa.RecordBatch):
        return pa.table(columns)
    whole = {
        name: column.combine_chunks() if hasattr(column, "chunks") else column
        for name, column in columns.items()
    }
    return pa.RecordBatch.from_pydict(whole)


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
    layout: Layout = ANSWER_ONLY
    neighbors: int = 0
    label_sep: str | None = None
    device: str = "auto"
    trust: bool = False
    missing: Missing = "impute"

    def __post_init__(self) -> None:
        checked_missing(self.missing)
        self._model: LoadedModel | None = (
            None  # no field, by which Dask would tell predictors apart
        )
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
        keep = self.keep
        if keep == ALL:
            keep = there
        keep = [keep] if isinstance(keep, str) else list(keep)
        for name in keep:
            if name not in there:
                raise DataError(f"the batch: {unknown_name('column', name, there)}")
        kept = kept_names(keep, model.formatter.names)
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
        formatter = self.model().formatter
        with one_core_each if formatter.pipeline.tile_size else nullcontext():
            yield from predict_chunks(formatter, chunks, path, before)

    def model(self) -> LoadedModel:
        """Return the model, which is read when it is first asked for."""
        with self._lock:
            if self._model is None:
                device = find_device(self.device)
                pipeline = Pipeline.load(self.folder, device=device, trust=self.trust)
                pipeline.missing = self.missing
                self.layout.check(pipeline)
                decoder = pipeline.make_decoder(self.decoder, **self.decoder_options)
                inputs = chosen_columns(pipeline, self.columns)
                join = label_sep_of(pipeline, self.label_sep)
                formatter = AnswerFormatter(pipeline, decoder, join, self.layout, self.neighbors)
                self._model = LoadedModel(formatter, inputs)
            return self._model

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        return {name: state[name] for name in state if name not in ("_model", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()


@dataclass
class LoadedModel:
    """What a Predictor has read from its folder.

    Attributes:
        formatter: of the answers of the model.
        inputs: the columns that it reads, by their kind.
    """

    formatter: AnswerFormatter
    inputs: dict[str, Any]

    def table(self, found: Iterable[tuple[Columns, Any]]) -> Any:
        """Return answers as an Arrow table, whose types are the same for every batch."""
        import pyarrow as pa

        parts = [
            pa.table({name: as_arrow(columns[name]) for name in self.formatter.names}).cast(
                self.schema
            )
            for columns, _ in found
        ]
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    @cached_property
    def schema(self) -> Any:
        """The types of the columns of an answer."""
        import pyarrow as pa

        one = self.formatter(torch.zeros(1, len(self.formatter.pipeline.hierarchy)))
        return pa.schema(
            (name, pa.array(as_arrow(one[name])).type)
            if name in one
            else (name, pa.float64() if name.endswith("_weight") else pa.string())  # of a neighbor
            for name in self.formatter.names
        )


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
