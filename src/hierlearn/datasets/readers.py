"""READERS: the formats of tables by the ending of the file; a folder of Parquet files is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from hierlearn.datasets.delimited import DelimitedFile
from hierlearn.datasets.parquet import ENDING as PARQUET
from hierlearn.datasets.parquet import ParquetFile
from hierlearn.datasets.table_file import PartitionedTableFile, TableFile
from hierlearn.errors import DataError
from hierlearn.files.locations import Location, RemotePath, as_location, tables_in

if TYPE_CHECKING:
    from pathlib import Path

READERS: dict[str, type[TableFile]] = {
    ".csv": DelimitedFile,
    ".tsv": DelimitedFile,
    PARQUET: ParquetFile,
}


def table_ending(source: Location | str) -> str | None:
    """Return the ending that tells the format of a source; None where it is no table.

    A folder with Parquet files directly in it is a table, and so is an address without an ending
    that is known.
    """
    path = as_location(source)
    ending = path.suffix.lower()
    if ending in READERS:
        return ending
    if isinstance(path, RemotePath):
        return PARQUET
    return PARQUET if path.is_dir() and holds_tables(path) else None


def holds_tables(folder: Path) -> bool:
    """Whether there are Parquet files directly in a folder."""
    return any(tables_in((one.name for one in folder.iterdir()), PARQUET))


def open_table(path: Location | str, delimiter: str | None = None) -> TableFile:
    """Open a table by its ending; only the header is read.

    Args:
        path: the file. Parquet also takes a folder, a pattern such as ``rows/*.parquet``, and an
            address that fsspec opens, such as ``s3://bucket/rows``.
        delimiter: what separates the cells of a CSV or TSV file; by default found.

    Raises:
        DataError: naming the known endings, or what is wrong with the file.
    """
    path = as_location(path)
    ending = table_ending(path)
    if ending is None:
        raise DataError(
            f"{path}: cannot read the ending {path.suffix!r}; known: {', '.join(READERS)}"
        )
    reader = READERS[ending]
    if isinstance(path, RemotePath) and not issubclass(reader, ParquetFile):
        raise DataError(
            f"{path}: only Parquet files are read from an address; convert the file, or copy it "
            f"to this machine"
        )
    made: Any = reader
    if delimiter is None:
        return cast("TableFile", made(path))
    if not reader.takes_delimiter:
        raise DataError(
            f"{path}: delimiter= goes with CSV and TSV files, not {reader.format_name}; leave it "
            f"out"
        )
    return cast("TableFile", made(path, delimiter))


def open_partitioned(path: Location | str) -> PartitionedTableFile:
    """Open a table whose rows can be read in any order, for training that streams them."""
    file = open_table(path)
    if not isinstance(file, PartitionedTableFile):
        names = [
            one.format_name for one in READERS.values() if issubclass(one, PartitionedTableFile)
        ]
        raise DataError(
            f"{path}: only {' or '.join(dict.fromkeys(names))} files can be streamed into "
            f"training; convert the file, or train without streaming"
        )
    return file
