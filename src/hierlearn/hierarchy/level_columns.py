"""Level columns: labels as a table with one column per level, as one path per row.

A frame of pandas or polars, or an (N, L) array of names; cells are missing below the last level
that is known. A missing cell above a known one is left out, with a warning. 2.0 is the name "2",
since a frame with gaps holds no integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierarchyError, LabelError
from hierlearn.hierarchy.names import has_gap, level_path, warn_of_gaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

TEXT = "OUT"  # kinds of NumPy's arrays of names


def is_frame(values: Any) -> bool:
    """Whether this is a frame of pandas or polars."""
    return hasattr(values, "columns") and hasattr(values, "shape")


def table_rows(values: Any) -> list[Sequence[Any]] | None:
    """Return the rows of a table with one column per level; None for labels in another form."""
    if is_frame(values):
        if hasattr(values, "iter_rows"):
            return list(values.iter_rows())
        return list(values.itertuples(index=False, name=None))
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind in TEXT:
        found: list[Sequence[Any]] = values.tolist()
        return found
    return None


def row_path(cells: Sequence[Any], row: int, sep: str, what: str = "labels") -> str | None:
    """Return the path of a row with one cell per level, None where all cells are missing."""
    whole = [int(c) if isinstance(c, float) and c.is_integer() else c for c in cells]
    try:
        return sep.join(level_path(whole, sep)) or None
    except HierarchyError as error:
        raise LabelError(f"row {row} of {what}, one column per level: {error}") from None


def as_rows(values: Any, sep: str, what: str = "labels") -> Any:
    """Return labels as rows: a table as one path per row, one column as it is, others unchanged."""
    table = table_rows(values)
    if table is None:
        return values
    if len(values.shape) == 2 and values.shape[1] == 1:
        return [row[0] for row in table]
    return paths_of(table, sep, what)


def paths_of(table: Iterable[Sequence[Any]], sep: str, what: str = "labels") -> list[str | None]:
    """Return the paths of rows with one cell per level, with a warning of gaps."""
    paths: list[str | None] = []
    gaps: list[int] = []
    for number, row in enumerate(table):
        paths.append(row_path(row, number, sep, what))
        if has_gap(row):
            gaps.append(number)
    if gaps:
        warn_of_gaps(what, len(gaps), f"row {gaps[0]}", str(paths[gaps[0]]))
    return paths


def join_levels(table: Any, sep: str = "/") -> NDArray[Any]:
    """Return (N,) the path of each row of a table with one column per level.

    scikit-learn's own scores and folds take one label per row, so they take these.

    Args:
        table: a frame, an (N, L) array or a list of rows, the top level first; cells may be missing
            below the last known level.
        sep: what joins the names of a path.

    Returns:
        An array of strings; of objects, with None, where a row has no label at all.

    Example:
        >>> join_levels([["animal", "dog"], ["animal", "cat"], ["plant", None]]).tolist()
        ['animal/dog', 'animal/cat', 'plant']
    """
    if isinstance(table, np.ndarray) and table.ndim != 2:
        raise LabelError(f"a table has one column per level, but its shape is {table.shape}")
    rows = table_rows(table)
    paths = paths_of(table if rows is None else rows, sep)
    return np.asarray(paths, dtype=object if None in paths else str)
