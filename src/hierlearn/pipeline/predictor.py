"""Predictor: a model folder as a function from a batch of rows to a batch of answers.

Engines that process tables on many machines call such a function: Ray Data, Spark, Dask, or the
processes of Python. It is sent to a worker as the path of the folder and a few options, and reads
the model there when it is first called.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.datasets.tables.write import as_arrow
from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.pipeline.answer_file import kept_names
from hierlearn.pipeline.batch import SOURCE, batch_chunk, column_names, like_batch
from hierlearn.pipeline.input_columns import known_columns
from hierlearn.pipeline.missing import checked_missing
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.predict import (
    ANSWER,
    Answering,
    answer_names,
    answers,
    neighbor_names,
    predict_chunks,
)
from hierlearn.pipeline.threads import one_core_each
from hierlearn.pipeline.tiles import tile_size
from hierlearn.training.processes import find_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hierlearn.datasets.tables.stream import Chunk
    from hierlearn.decoding import Decoder
    from hierlearn.pipeline.answer_columns import Layout
    from hierlearn.pipeline.missing import Missing

    Columns = dict[str, Any]

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
