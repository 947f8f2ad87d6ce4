"""Clus ARFF: the format of the hierarchical benchmarks, tree and DAG form.

One attribute of the type ``hierarchical`` spells out the taxonomy (see ``hierarchy.clus``); in the
rows its value lists labels joined by ``@``: paths in the tree form, bare names in the DAG form.
Numeric attributes become one column, nominal ones one column per value; ``?`` is a missing value,
NaN in all of its columns. Rows may be sparse, ``{0 1.5, 7 a/b@c}``; what they omit is 0, or the
first value of a nominal attribute. The size of all columns is known from the header and the number
of rows, and is looked at before any row is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hierlearn.datasets.dataset import Dataset
from hierlearn.datasets.tables.table import TableChunk
from hierlearn.errors import DataError, LabelError, did_you_mean, place, plural, quoted, shown
from hierlearn.files import read_text
from hierlearn.files.reading import room_of
from hierlearn.hierarchy.formats.read import (
    class_position,
    hierarchy_of,
    read_header,
    split_quoted,
    unquote,
)
from hierlearn.hierarchy.names import checked_sep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hierlearn.hierarchy.formats.read import Attribute


MISSING = "?"


class ArffColumn(TableChunk):
    """The cells of one numeric attribute."""

    remedy: ClassVar[str] = "write ? if it is missing"


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
    attributes, data_line = read_header(path, lines)
    position = class_position(attributes, path)
    hierarchy = hierarchy_of(attributes[position], path, sep=sep)
    data = enumerate(map(str.strip, lines[data_line:]), start=data_line + 1)
    given = [(number, line) for number, line in data if line and not line.startswith("%")]
    numbers = [number for number, _ in given]  # the line of each row
    if not given:
        raise DataError(f"{path} has no rows after @data")
    size = sum(map(len, lines))
    check_size(path, attributes, len(given), size)
    rows: list[list[str]] = []
    for number, line in given:
        try:
            rows.append(split_row(line, attributes))
        except ValueError as error:
            raise DataError(f"{place(path, number)}: {error}") from None
    columns = list(zip(*rows, strict=True))
    inputs = np.empty((len(rows), sum(map(width, attributes))), dtype=np.float32)
    names: list[str] = []
    for attribute, cells in zip(attributes, columns, strict=True):
        if attribute.kind == "numeric":
            chunk = ArffColumn(path, {attribute.name: cells}, numbers)
            inputs[:, len(names)] = chunk.number_column(attribute.name)
            names.append(attribute.name)
        elif attribute.kind == "nominal":
            block = inputs[:, len(names) : len(names) + len(attribute.values)]
            fill_nominal(block, path, attribute, cells, numbers)
            names += [f"{attribute.name}={value}" for value in attribute.values]
    labels: list[list[str]] = []
    for cell, number in zip(columns[position], numbers, strict=True):
        text = unquote(cell)
        parts = [] if text in ("", MISSING) else [part.strip() for part in text.split("@")]
        try:
            labels.append([hierarchy.names[hierarchy.index(one, exact=True)] for one in parts])
        except LabelError as error:
            raise LabelError(f"{place(path, number)}: {error.message}") from None
    return Dataset(
        inputs=inputs,
        labels=labels,
        hierarchy=hierarchy,
        name=path.stem,
        feature_names=tuple(names),
        source=f"the Clus ARFF file {path.name}",
        lines=numbers,
    )


def width(attribute: Attribute) -> int:
    """Return how many columns an attribute becomes."""
    return {"numeric": 1, "nominal": len(attribute.values)}.get(attribute.kind, 0)


def check_size(path: Path, attributes: Sequence[Attribute], rows: int, size: int) -> None:
    """Raise where the columns would take far more memory than the file, and name the largest.

    Args:
        path: the file.
        attributes: of the header.
        rows: how many there are.
        size: characters of the file.
    """
    cells = rows * max(sum(map(width, attributes)), 2 * len(attributes))  # as texts, then as floats
    if 4 * cells <= room_of(size):
        return
    largest = max(attributes, key=width)
    what = (
        f"attribute {shown(largest.name)} has {width(largest):,} values, each of which is a column"
        if 2 * width(largest) > len(attributes)
        else f"it has {len(attributes):,} attributes"
    )
    raise DataError(
        f"{path}: {what}; with {plural(rows, 'row')} that takes {4 * cells / 1e9:,.1f} GB of "
        f"memory for {size / 1e6:,.1f} MB of text; leave the attribute out, declare it numeric, or "
        f"write a CSV file, where rare categories share a column"
    )


def split_row(line: str, attributes: Sequence[Attribute]) -> list[str]:
    """Return one cell per attribute, those that a sparse row leaves out, too.

    Raises:
        ValueError: with the reason.
    """
    if not line.startswith("{"):
        cells = [cell.strip() for cell in split_quoted(line)]
        if len(cells) != len(attributes):
            raise ValueError(
                f"{len(cells)} values, but the header has {len(attributes)} attributes"
            )
        return cells
    if not line.endswith("}"):
        raise ValueError("a sparse row is not closed with }")
    cells = [
        one.values[0] if one.kind == "nominal" else "" if one.kind == "hierarchical" else "0"
        for one in attributes
    ]
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


def fill_nominal(
    block: NDArray[np.float32],
    path: Path,
    attribute: Attribute,
    cells: tuple[str, ...],
    lines: list[int],
) -> None:
    """Write cells into one column per value."""
    places = {value: number for number, value in enumerate(attribute.values)}
    found = [-1 if cell == MISSING else places.get(unquote(cell), -2) for cell in cells]
    codes = np.array(found, dtype=np.int64)
    bad = np.flatnonzero(codes == -2)
    if len(bad):
        cell = unquote(cells[bad[0]])
        hint = did_you_mean(cell, attribute.values) or f"; known: {quoted(attribute.values)}"
        where = place(path, lines[bad[0]], attribute.name)
        raise DataError(f"{where}: unknown value {cell!r}{hint}")
    block[:] = 0.0
    block[codes == -1] = np.nan
    known = np.flatnonzero(codes >= 0)
    block[known, codes[known]] = 1.0
