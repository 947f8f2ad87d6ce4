"""Batches of an engine: dicts of columns, Arrow tables and pandas frames, in and out alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.images.images import Images
from hierlearn.datasets.tables.arrow import ArrowChunk
from hierlearn.datasets.tables.stream import Chunk, list_column
from hierlearn.datasets.tables.table import is_frame
from hierlearn.errors import DataError, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

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
