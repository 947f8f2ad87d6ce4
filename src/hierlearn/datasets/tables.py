"""CSV, TSV and Parquet tables: feature columns or a text column, and labels.

Labels stand in one column, several joined by ``label_sep`` (``animal/dog;plant``), or in a column
a level (``kingdom,family,species``), empty below the last one known. A row may have no label.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.datasets.columns import name_labels, numeric_column
from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.parquet import opened_parquet
from hierlearn.errors import DataError, HierarchyError, place, quoted, unknown_name
from hierlearn.files import read_rows
from hierlearn.hierarchy import Hierarchy
from hierlearn.hierarchy.names import checked_sep, is_missing, level_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Table:
    """Named columns of cells, and the line of the file (or row of the table) of each."""

    path: Path
    columns: dict[str, list[Any]]
    lines: Sequence[int]

    def column(self, name: str) -> list[Any]:
        """Return a column, or refuse a name that the table does not have."""
        if name not in self.columns:
            raise DataError(f"{self.path}: {unknown_name('column', name, self.columns)}")
        return self.columns[name]


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
) -> Dataset:
    """Read a CSV, TSV or Parquet file.

    Args:
        path: the file; its ending tells the format. Parquet needs the extra ``data``.
        label: the column of labels, or
        levels: the columns of labels, a column a level, top level first.
        features: the numeric feature columns; by default every other column.
        text: the column of texts, instead of features.
        split: a column that names each row's split.
        hierarchy: the taxonomy, or a file of it; by default inferred from the labels' paths.
        label_sep: what joins several labels in one cell.
        sep: what joins the names of a path.
    """
    path = Path(path)
    check_words(label, levels, features, text, split, sep)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path}: cannot read the ending {path.suffix!r}; known: {', '.join(READERS)}"
        )
    table = reader(path)
    if not table.lines:
        raise DataError(f"{path} has a header but no rows")
    if isinstance(hierarchy, (str, Path)):
        hierarchy = Hierarchy.read(hierarchy, sep=sep)
    if hierarchy is not None:
        sep = hierarchy.sep
    splits = {} if split is None else read_splits(table, split)
    raw = read_labels(table, label, levels, label_sep, sep)
    if hierarchy is None:
        hierarchy = infer_hierarchy(path, raw, sep)
    labels = name_labels(raw, hierarchy, path=path, lines=table.lines)
    used = {label, split, *(levels or ())}
    names: tuple[str, ...] = ()
    if text is not None:
        inputs: Any = read_texts(table, text)
    else:
        chosen = [name for name in table.columns if name not in used]
        names = tuple(chosen if features is None else features)
        inputs = read_features(table, names)
    return Dataset(
        inputs=inputs,
        labels=labels,
        hierarchy=hierarchy,
        splits=splits,
        name=path.stem,
        feature_names=names,
        source=f"the table {path.name}",
    )


def check_words(
    label: str | None,
    levels: Sequence[str] | None,
    features: Sequence[str] | None,
    text: str | None,
    split: str | None,
    sep: str,
) -> None:
    """Refuse words of ``read_table`` that do not go together."""
    if (label is None) == (levels is None):
        raise DataError("name either the label column (label=) or the level columns (levels=)")
    if text is not None and features is not None:
        raise DataError("name either feature columns (features=) or a text column (text=)")
    check_roles(label=label, levels=levels, features=features, text=text, split=split)
    checked_sep(sep)


def check_roles(**roles: str | Sequence[str] | None) -> None:
    """Refuse a column that is named twice: a label among the features would give itself away."""
    seen: dict[str, str] = {}
    for role, named in roles.items():
        if named is not None and not named:
            raise DataError(f"{role} names no column; name at least one")
        for name in [named] if isinstance(named, str) else named or ():
            if name in seen:
                raise DataError(
                    f"column {name!r} is named twice, as {seen[name]} and as {role}; "
                    f"give each column one role"
                )
            seen[name] = role


def checked_label_sep(label_sep: str, sep: str) -> str:
    """Refuse what would not tell several labels from the names of one path."""
    if not label_sep or label_sep in sep or sep in label_sep:
        raise DataError(
            f"label_sep {label_sep!r} joins labels and sep {sep!r} the names of a path; "
            f"neither may be empty or part of the other"
        )
    return label_sep


def read_delimited(path: Path) -> Table:
    """Read CSV or TSV as texts; a row of empty cells is a row."""
    header, rows = read_rows(path, skip_empty=False)
    cells = list(zip(*(row for _, row in rows), strict=True)) or [() for _ in header]
    columns = {name: list(column) for name, column in zip(header, cells, strict=True)}
    return Table(path, columns, [line for line, _ in rows])


def read_parquet(path: Path) -> Table:
    """Read Parquet through pyarrow; the line of a row is its number from 1."""
    with opened_parquet(path) as file:
        table = file.read()
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    return Table(path, columns, range(1, table.num_rows + 1))


READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": read_delimited,
    ".tsv": read_delimited,
    ".parquet": read_parquet,
}


def read_labels(
    table: Table, label: str | None, levels: Sequence[str] | None, label_sep: str, sep: str
) -> list[list[str]]:
    """Return the labels of each row as they are written."""
    if levels is not None:
        return read_levels(table, levels, sep)
    return read_joined(table, str(label), checked_label_sep(label_sep, sep), sep)


def read_joined(table: Table, label: str, label_sep: str, sep: str) -> list[list[str]]:
    """Return the labels of a column whose cells join them, or hold lists of them.

    Blanks around a name say nothing: ``a / b`` is ``a/b``.
    """
    rows: list[list[str]] = []
    for line, cell in zip(table.lines, table.column(label), strict=True):
        is_list = isinstance(cell, (list, tuple))
        parts: list[str] = []
        for one in cell if is_list else [cell]:
            if is_missing(one):
                continue
            if isinstance(one, bool) or not isinstance(one, (str, int)):
                where = place(table.path, line, label)
                raise DataError(f"{where}: a label is text, not {one!r} ({type(one).__name__})")
            parts += [str(one)] if is_list else str(one).split(label_sep)
        paths = (sep.join(name.strip() for name in part.split(sep)) for part in parts)
        rows.append([path for path in paths if path])
    return rows


def read_levels(table: Table, levels: Sequence[str], sep: str) -> list[list[str]]:
    """Return the label of each row of a table with a column a level."""
    rows: list[list[str]] = []
    cells = zip(*(table.column(name) for name in levels), strict=True)
    for line, row in zip(table.lines, cells, strict=True):
        try:
            parts = level_path(row, sep)
        except HierarchyError as error:
            raise DataError(f"{place(table.path, line)}: {error}") from None
        rows.append([sep.join(parts)] if parts else [])
    return rows


def infer_hierarchy(path: Path, raw: list[list[str]], sep: str) -> Hierarchy:
    """Build the tree of all paths that occur as labels."""
    paths = sorted({label for labels in raw for label in labels})
    if not paths:
        raise DataError(f"{path} has no label at all, so no hierarchy can be inferred from it")
    try:
        return Hierarchy.from_paths(paths, sep=sep)
    except HierarchyError as error:
        raise HierarchyError(f"{path}: {error}") from None


def read_features(table: Table, names: Sequence[str]) -> NDArray[np.float32]:
    """Return (N, D) float32; an empty cell is missing."""
    if not names:
        raise DataError(
            f"{table.path} has no feature column; it has {quoted(table.columns, most=10)}"
        )
    columns = [
        numeric_column(
            table.column(name),
            path=table.path,
            lines=table.lines,
            column=name,
            missing="",
            remedy="leave the cell empty if it is missing, or choose the columns with features",
        )
        for name in names
    ]
    return np.stack(columns, axis=1)


def read_texts(table: Table, name: str) -> list[str]:
    """Return a column of texts; an empty cell is an empty text."""
    texts: list[str] = []
    for line, cell in zip(table.lines, table.column(name), strict=True):
        if cell is not None and not isinstance(cell, str):
            raise DataError(f"{place(table.path, line, name)}: {cell!r} is not text")
        texts.append(cell or "")
    return texts


def read_splits(table: Table, name: str) -> dict[str, NDArray[np.int64]]:
    """Group the rows by the split that a column names."""
    found: dict[str, list[int]] = {}
    for row, (line, cell) in enumerate(zip(table.lines, table.column(name), strict=True)):
        if is_missing(cell):
            raise DataError(f"{place(table.path, line, name)}: a row without a split")
        found.setdefault(str(cell), []).append(row)
    return {split: np.array(rows, dtype=np.int64) for split, rows in found.items()}
