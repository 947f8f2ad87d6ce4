"""Tables as datasets: read into memory, or streamed from the file; see ``readers`` for formats."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.annotations import Annotations
from hierlearn.datasets.columns import Columns
from hierlearn.datasets.readers import open_partitioned, open_table
from hierlearn.datasets.row_groups import RowGroups, Source
from hierlearn.datasets.table import columns_summary
from hierlearn.datasets.typed_columns import ColumnWarning, type_columns
from hierlearn.datasets.vectors import Vectors
from hierlearn.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Dataset, Kind
    from hierlearn.datasets.label_report import Unknown
    from hierlearn.datasets.table_file import TableChunk, TableFile
    from hierlearn.hierarchy import Hierarchy

ROWS = 1 << 20  # rows whose labels are parsed at a time
FIRST = 1000  # rows by which a mixed table is recognized before it is streamed


def read_table(
    path: Path | str,
    *,
    label: str | None = None,
    levels: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    text: str | None = None,
    split: str | None = None,
    hierarchy: Hierarchy | Path | str | None = None,
    label_sep: str | None = ";",
    sep: str | None = None,
    id_column: str | None = None,
    ignore: Sequence[str] | None = None,
    column_kinds: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    labels_by_id: Mapping[str, Sequence[str]] | None = None,
    unknown: Unknown = "error",
    embeddings: Path | str | None = None,
) -> Dataset:
    """Read a CSV or TSV file, or one or many Parquet files, into memory.

    Inputs are numbers where every input column is one, texts where the only one is of texts, and
    otherwise a ``Table``: each column is a number, category, text, date or boolean. The kinds are
    found on the training rows by the rule in ``column_kinds``, unless they are given.

    Args:
        path: the file; its ending tells the format. Parquet needs the extra ``data``, and may be a
            folder of files, a pattern such as ``rows/*.parquet``, or an address that fsspec
            opens, such as ``s3://bucket/rows``.
        label: the column of labels, or
        levels: the columns of labels, one column per level, top level first.
        features: the input columns; by default every other column.
        text: the column of texts; alone it is the only input, beside features one more of them.
        split: a column that names each row's split.
        hierarchy: the taxonomy, or a file of it; by default inferred from the labels' paths.
        label_sep: what joins several labels in one cell; None where a cell holds one label.
        sep: what joins the names of a path, by default /; names in level columns that hold a slash
            are joined by another one.
        id_column: a column that names each row; rows may share an id.
        ignore: columns that are no inputs.
        column_kinds: the kinds of some input columns: number, category, text, boolean, date, or
            a date with its format, ``date:%d.%m.%Y``.
        delimiter: what separates the cells of a CSV or TSV file; by default found.
        labels_by_id: instead of columns of labels, the labels of each row by its id, such as those
            of ``read_gaf``; rows without any are left out.
        unknown: "error" to raise on a label that the hierarchy does not have, "skip" to leave it
            out, "nearest" to let it count for the nearest class above; see
            ``Dataset.label_report``.
        embeddings: instead of input columns, the vector of each row that another model made: a
            ``.npy`` or ``.safetensors`` file with one row per row of the table, or a column of
            lists.

    Raises:
        DataError: naming the file, the line and the column of what is wrong.
        LabelError: naming the line of a label that the hierarchy does not have.
    """
    columns = Columns(
        label,
        levels,
        features,
        text,
        split,
        hierarchy,
        label_sep,
        sep,
        id_column,
        ignore,
        column_kinds or {},
        labels_by_id,
        unknown,
        embeddings,
    )
    file = open_table(path, delimiter)
    names = columns.inputs_of(file)
    vectors = None if embeddings is None else Vectors(embeddings, file)
    names = names if vectors is None else vectors.columns
    table = file.read(list(dict.fromkeys([*columns.annotations, *names])))
    annotations = Annotations(file, columns)
    annotations.add(table)
    if vectors is not None:
        vectors.check_count(len(table))
        return annotations.dataset(vectors.next(table))
    if columns.only_text is not None:
        return annotations.dataset(table.texts(columns.only_text))
    return annotations.dataset(*typed_inputs(table, names, columns, annotations.training_rows()))


def typed_inputs(
    table: TableChunk, names: Sequence[str], columns: Columns, rows: NDArray[np.int64]
) -> tuple[Any, Sequence[str]]:
    """Return the inputs of a table by the kinds of its columns, and their names.

    Args:
        table: all rows.
        names: the input columns.
        columns: what the user said about them.
        rows: the training rows.
    """
    found = type_columns(table, names, columns.kinds, rows, chosen=not columns.takes_rest)
    numbers = found.numbers
    if numbers is not None:
        inputs = np.empty((len(table), len(numbers)), dtype=np.float32)
        for position, name in enumerate(numbers):
            inputs[:, position] = found.columns.pop(name)
        return inputs, numbers
    if found.text is not None:
        return found.columns[found.text].tolist(), (found.text,)
    found.ignored = dict.fromkeys(columns.ignore or (), "")
    mixed = found.table()
    return mixed, mixed.names


def stream_table(path: Path | str, *, window: int | None = None, **columns: Any) -> Dataset:
    """Open Parquet files like ``read_table``, but leave their inputs in the files.

    Args:
        path: the file, folder, pattern or address.
        window: how many rows are shuffled together in training, by each process.
        columns: the other arguments of ``read_table``.
    """
    roles = Columns(**columns)
    if roles.embeddings is not None:
        raise DataError(f"{path}: embeddings cannot be streamed; train without streaming")
    file = open_partitioned(path)
    names = roles.inputs_of(file)
    if not file.num_rows:
        raise file.no_rows()
    kind: Kind = "numbers" if roles.only_text is None else "texts"
    if kind == "numbers":
        refuse_mixed(file, names, roles)
    inputs = RowGroups(Source(file, names, kind), window)
    annotations = Annotations(file, roles)
    for chunk in file.chunks(roles.annotations, ROWS):
        annotations.add(chunk)
    return annotations.dataset(inputs, names if kind == "numbers" else ())


def refuse_mixed(file: TableFile, names: Sequence[str], roles: Columns) -> None:
    """Raise on a mixed table, judged by its first rows: only numbers or one text can be streamed.

    Columns that the user named as features are taken for numbers without a look.
    """
    remedy = (
        "only numbers, or one column of texts, can be streamed: train without streaming, or choose "
        "columns with features= or text="
    )
    if roles.column_kinds or roles.text is not None:
        raise DataError(f"{file.path}: {remedy}")
    if roles.features is not None:
        return
    first = next(iter(file.chunks(names, FIRST)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)
        kinds = type_columns(first, names, {}, chosen=True).kinds
    if any(kind != "number" for kind in kinds.values()):
        raise DataError(f"{file.path} is a mixed table of {columns_summary(kinds, {})}; {remedy}")
