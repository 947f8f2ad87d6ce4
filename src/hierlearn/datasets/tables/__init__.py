"""Tables in files: READERS, the formats by the ending of the file, and ``open_table``.

A format is a ``TableFile``: it names its columns and yields its rows in chunks. A folder of Parquet
files is one table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from hierlearn.datasets.tables.arrow import ENDING as PARQUET
from hierlearn.datasets.tables.arrow import ArrowFile, ParquetFile
from hierlearn.datasets.tables.cell_files import ExcelFile, JsonLinesFile, SqliteFile
from hierlearn.datasets.tables.delimited import DelimitedFile
from hierlearn.errors import DataError, arg
from hierlearn.files.locations import (
    STANDARD,
    Location,
    RemotePath,
    as_location,
    file_and_part,
    is_standard,
    standard_input,
    tables_in,
)
from hierlearn.files.reading import is_compressed, is_folder, plain_ending

if TYPE_CHECKING:
    from pathlib import Path

    from hierlearn.datasets.tables.table import TableFile


READERS: dict[str, type[TableFile]] = {
    ".csv": DelimitedFile,
    ".tsv": DelimitedFile,
    ".txt": DelimitedFile,
    PARQUET: ParquetFile,
    ".jsonl": JsonLinesFile,
    ".ndjson": JsonLinesFile,
    ".xlsx": ExcelFile,
    ".feather": ArrowFile,
    ".arrow": ArrowFile,
    ".db": SqliteFile,
    ".sqlite": SqliteFile,
    ".sqlite3": SqliteFile,
}
TEXTS = (DelimitedFile, JsonLinesFile)  # formats that may be compressed


def table_ending(source: Location | str) -> str | None:
    """Return the ending that tells the format of a source; None where it is no table.

    A folder with Parquet files directly in it is a table, and so is an address without an ending
    that is known, and ``-``, standard input.
    """
    if is_standard(source):
        return STANDARD
    path = as_location(source)
    if isinstance(path, RemotePath):
        return path.suffix.lower() if path.suffix.lower() in READERS else PARQUET
    ending = plain_ending(file_and_part(path)[0])
    if ending in READERS and (issubclass(READERS[ending], TEXTS) or not is_compressed(path)):
        return ending
    return PARQUET if is_folder(path) and holds_tables(path) else None


def known_endings() -> str:
    """Name the endings of tables, for errors."""
    return f"{', '.join(READERS)}; .csv.gz, .jsonl.gz, also .bz2 and .xz"


def holds_tables(folder: Path) -> bool:
    """Whether there are Parquet files directly in a folder."""
    return any(tables_in((one.name for one in folder.iterdir()), PARQUET))


def open_table(path: Location | str, delimiter: str | None = None) -> TableFile:
    """Open a table by its ending; only the header is read.

    Args:
        path: the file, or ``-`` for standard input. Parquet also takes a folder, a pattern such as
            ``rows/*.parquet``, and an address that fsspec opens, such as ``s3://bucket/rows``;
            Excel and SQLite the name of a sheet or table, ``rows.xlsx::March``.
        delimiter: what separates the cells of a CSV or TSV file; by default found.

    Raises:
        DataError: naming the known endings, or what is wrong with the file.
    """
    path = standard_input() if is_standard(path) else as_location(path)
    ending = table_ending(path)
    if ending is None:
        raise DataError(f"{path}: cannot read the ending {path.suffix!r}; known: {known_endings()}")
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
            f"{path}: {arg('delimiter=')} goes with CSV and TSV files, not {reader.format_name}; "
            "leave it "
            f"out"
        )
    return cast("TableFile", made(path, delimiter))
