"""Tables with a column of images: paths beside the table, or the bytes of the files in Parquet.

A path is relative to the folder of the table. In Parquet the column may also hold bytes, or
``{bytes, path}``, as Hugging Face datasets write images.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.annotations import Annotations
from hierlearn.datasets.columns import Columns
from hierlearn.datasets.images import ImageFile, Images, check_below
from hierlearn.datasets.parquet import ParquetFile, opened_parquet
from hierlearn.datasets.readers import open_table
from hierlearn.errors import DataError, place
from hierlearn.files.locations import RemotePath

if TYPE_CHECKING:
    from pathlib import Path

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.datasets.table_file import TableFile
    from hierlearn.files.locations import Location

GROUPS = 2  # row groups that are held at a time


@dataclass(frozen=True)
class ParquetImage:
    """The image of a row of a Parquet file.

    Attributes:
        path: the file.
        column: of the images.
        group: the row group.
        row: in the group.
        name: what to call it.
    """

    path: Location
    column: str
    group: int
    row: int
    name: str

    def read(self) -> bytes:
        """Return the bytes of the image."""
        cell = read_group(self.path, self.column, self.group)[self.row].as_py()
        found = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(found, bytes):
            raise DataError("the cell has no bytes of an image")
        return found


@lru_cache(maxsize=GROUPS)
def read_group(path: Location, column: str, group: int) -> Any:
    """Return the cells of a column in a row group."""
    with opened_parquet(path) as file:
        return file.read_row_group(group, columns=[column]).column(column)


def read_image_table(path: Path | str, *, image: str, **columns: Any) -> Dataset:
    """Read a table whose input is a column of images, which stay where they are.

    Args:
        path: a CSV, TSV or Parquet file.
        image: the column of paths, or of bytes in Parquet.
        columns: the other arguments of ``read_table``, but not its inputs.
    """
    delimiter = columns.pop("delimiter", None)
    roles = Columns(text=image, **columns)
    file = open_table(path, delimiter)
    roles.inputs_of(file)
    table = file.read([*roles.annotations])
    annotations = Annotations(file, roles)
    annotations.add(table)
    return annotations.dataset(table_images(file, image))


def table_images(file: TableFile, column: str) -> Images:
    """Return the images of a column of a table."""
    file.check_columns([column])
    if isinstance(file, ParquetFile) and not holds_text(file, column):
        return Images(parquet_images(file, column))
    if isinstance(file.path, RemotePath):
        raise DataError(
            f"{file.path}: paths of images are read beside a local table; store the bytes of the "
            f"images in the column {column!r}"
        )
    table = file.read([column])
    root = file.path if file.path.is_dir() else file.path.parent
    names = table.texts(column)
    for line, name in zip(table.lines, names, strict=True):
        try:
            check_below(root, name)
        except DataError as error:
            raise DataError(f"{place(file.path, line, column)}: {error}") from None
    return Images(ImageFile(root, name) for name in names)


def holds_text(file: ParquetFile, column: str) -> bool:
    """Whether a column of a Parquet file holds texts; raise where it cannot hold images."""
    from pyarrow import types

    with opened_parquet(file.files[0]) as opened:
        kind = opened.schema_arrow.field(column).type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind):
        return True
    held = kind
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        held = kind.field("bytes").type
    if types.is_binary(held) or types.is_large_binary(held):
        return False
    raise DataError(
        f"{file.path}: column {column!r} holds {kind}, not images: paths, bytes, or a struct of "
        f"bytes and path"
    )


def parquet_images(file: ParquetFile, column: str) -> list[ParquetImage]:
    """Return where the images of a Parquet column are; they are named by path, or by row."""
    found = []
    for group in range(len(file.group_offsets) - 1):
        begin, end = (int(one) for one in file.group_offsets[group : group + 2])
        names = [f"row {number + 1}" for number in range(begin, end)]
        path, number = file.place_of(group)
        cells = read_group(path, column, number)
        if hasattr(cells.type, "get_field_index") and cells.type.get_field_index("path") >= 0:
            import pyarrow.compute as pc

            paths = pc.struct_field(cells, "path").to_pylist()
            names = [str(one or name) for one, name in zip(paths, names, strict=True)]
        found += [ParquetImage(path, column, number, row, name) for row, name in enumerate(names)]
    return found
