"""Clus ARFF: the format of the hierarchical benchmarks, tree and DAG form.

One attribute of the type ``hierarchical`` spells out the taxonomy (see ``hierarchy.clus``); in the
rows its value lists labels joined by ``@``: paths in the tree form, bare names in the DAG form.
Numeric attributes become one column, nominal ones one column per value; ``?`` is a missing value,
NaN in all of its columns. Rows may be sparse, ``{0 1.5, 7 a/b@c}``; what they omit is 0, or the
first value of a nominal attribute.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from hierlearn.datasets.cells import name_labels, numeric_column
from hierlearn.datasets.dataset import Dataset
from hierlearn.errors import DataError, did_you_mean, place, quoted
from hierlearn.files import read_text
from hierlearn.hierarchy.clus import hierarchy_of, read_header, split_quoted, unquote
from hierlearn.hierarchy.names import checked_sep

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hierlearn.hierarchy.clus import Attribute

MISSING = "?"


def read_arff(path: Path | str, *, sep: str = "/") -> Dataset:
    """Read a Clus ARFF file.

    Args:
        path: the file.
        sep: what joins the names of a path.

    Returns:
        inputs (N, D) float32 with NaN where a value is missing, labels, hierarchy.

    Raises:
        DataError: naming the line and column of whatever is wrong.
        LabelError: naming the line of a label that the header does not list.
    """
    path = Path(path)
    checked_sep(sep)
    lines = read_text(path).split("\n")
    header = read_header(path, lines)
    position = header.class_position(path)
    hierarchy = hierarchy_of(header.attributes[position], path, sep=sep)
    rows: list[list[str]] = []
    numbers: list[int] = []  # the line of each row
    for number, raw in enumerate(lines[header.data_line :], start=header.data_line + 1):
        line = raw.strip()
        if line and not line.startswith("%"):
            try:
                rows.append(split_row(line, header.attributes))
            except ValueError as error:
                raise DataError(f"{place(path, number)}: {error}") from None
            numbers.append(number)
    if not rows:
        raise DataError(f"{path} has no rows after @data")
    columns = list(zip(*rows, strict=True))
    blocks: list[NDArray[np.float32]] = []
    names: list[str] = []
    for attribute, cells in zip(header.attributes, columns, strict=True):
        if attribute.kind == "numeric":
            column = numeric_column(
                cells,
                path=path,
                lines=numbers,
                column=attribute.name,
                missing=MISSING,
                remedy="write ? if it is missing",
            )
            blocks.append(column[:, None])
            names.append(attribute.name)
        elif attribute.kind == "nominal":
            blocks.append(nominal_columns(path, attribute, cells, numbers))
            names += [f"{attribute.name}={value}" for value in attribute.values]
    inputs = np.concatenate(blocks, axis=1) if blocks else np.zeros((len(rows), 0), np.float32)
    cut = [split_labels(cell) for cell in columns[position]]
    labels = name_labels(cut, hierarchy, path=path, lines=numbers, exact=True)
    return Dataset(
        inputs=inputs,
        labels=labels,
        hierarchy=hierarchy,
        name=path.stem,
        feature_names=tuple(names),
        source=f"the Clus ARFF file {path.name}",
        lines=numbers,
    )


def split_row(line: str, attributes: tuple[Attribute, ...]) -> list[str]:
    """Return one cell per attribute, or raise ValueError with the reason."""
    if line.startswith("{"):
        return split_sparse(line, attributes)
    cells = [cell.strip() for cell in split_quoted(line)]
    if len(cells) != len(attributes):
        raise ValueError(f"{len(cells)} values, but the header has {len(attributes)} attributes")
    return cells


def split_sparse(line: str, attributes: tuple[Attribute, ...]) -> list[str]:
    """Fill in what a sparse row leaves out."""
    if not line.endswith("}"):
        raise ValueError("a sparse row is not closed with }")
    cells = [one.values[0] if one.kind == "nominal" else "0" for one in attributes]
    for number, attribute in enumerate(attributes):
        if attribute.kind == "hierarchical":
            cells[number] = ""
    seen: set[int] = set()
    for item in split_quoted(line[1:-1]) if line[1:-1].strip() else []:
        index, *value = item.split(None, 1) or [""]
        if not index.isdecimal() or not index.isascii() or not value:
            raise ValueError(f"{item.strip()!r} is not an index and a value")
        number = int(index)
        if number >= len(attributes):
            raise ValueError(f"index {number}, but the header has {len(attributes)} attributes")
        if number in seen:
            raise ValueError(f"index {number} occurs twice")
        seen.add(number)
        cells[number] = value[0].strip()
    return cells


def nominal_columns(
    path: Path, attribute: Attribute, cells: tuple[str, ...], lines: list[int]
) -> NDArray[np.float32]:
    """Turn cells into one column per value."""
    places = {value: number for number, value in enumerate(attribute.values)}
    found = [-1 if cell == MISSING else places.get(unquote(cell), -2) for cell in cells]
    codes = np.array(found, dtype=np.int64)
    bad = np.flatnonzero(codes == -2)
    if len(bad):
        cell = unquote(cells[bad[0]])
        hint = did_you_mean(cell, attribute.values) or f"; known: {quoted(attribute.values)}"
        where = place(path, lines[bad[0]], attribute.name)
        raise DataError(f"{where}: unknown value {cell!r}{hint}")
    columns = (codes[:, None] == np.arange(len(attribute.values))).astype(np.float32)
    columns[codes == -1] = np.nan
    return cast("NDArray[np.float32]", columns)


def split_labels(cell: str) -> list[str]:
    """Split a class cell at ``@``."""
    text = unquote(cell)
    return [] if text in ("", MISSING) else [part.strip() for part in text.split("@")]
