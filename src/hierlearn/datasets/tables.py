"""Tables as datasets: read into memory, or streamed from the file; see ``readers`` for formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.datasets.annotations import Annotations
from hierlearn.datasets.columns import Columns
from hierlearn.datasets.readers import open_partitioned, open_table
from hierlearn.datasets.row_groups import RowGroups, Source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hierlearn.datasets.dataset import Dataset, Kind
    from hierlearn.hierarchy import Hierarchy

ROWS = 1 << 16  # rows whose labels are parsed at a time


def read_table(
    path: Path | str,
    *,
    label: str | None = None,
    levels: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    text: str | None = None,
    split: str | None = None,
    hierarchy: Hierarchy | Path | str | None = None,
    label_sep: str = ";",
    sep: str = "/",
    id_column: str | None = None,
) -> Dataset:
    """Read a CSV, TSV or Parquet file into memory.

    Args:
        path: the file; its ending tells the format. Parquet needs the extra ``data``.
        label: the column of labels, or
        levels: the columns of labels, one column per level, top level first.
        features: the numeric feature columns; by default every other column.
        text: the column of texts, instead of features.
        split: a column that names each row's split.
        hierarchy: the taxonomy, or a file of it; by default inferred from the labels' paths.
        label_sep: what joins several labels in one cell.
        sep: what joins the names of a path.
        id_column: a column that names each row; rows may share an id.

    Raises:
        DataError: naming the file, the line and the column of what is wrong.
        LabelError: naming the line of a label that the hierarchy does not have.
    """
    columns = Columns(label, levels, features, text, split, hierarchy, label_sep, sep, id_column)
    file = open_table(path)
    names = columns.inputs_of(file)
    table = file.read([*columns.annotations, *names])
    annotations = Annotations(file, columns)
    annotations.add(table)
    if columns.text is not None:
        return annotations.dataset(table.texts(columns.text))
    return annotations.dataset(table.numbers(names), names)


def stream_table(path: Path | str, *, window: int | None = None, **columns: Any) -> Dataset:
    """Open a Parquet file like ``read_table``, but leave its inputs in the file.

    Args:
        path: the file.
        window: how many rows are shuffled together in training.
        columns: the other arguments of ``read_table``.
    """
    roles = Columns(**columns)
    file = open_partitioned(path)
    names = roles.inputs_of(file)
    if not file.num_rows:
        raise file.no_rows()
    kind: Kind = "numbers" if roles.text is None else "texts"
    inputs = RowGroups(Source(file, names, kind), window)
    annotations = Annotations(file, roles)
    for chunk in file.chunks(roles.annotations, ROWS):
        annotations.add(chunk)
    return annotations.dataset(inputs, names if kind == "numbers" else ())
