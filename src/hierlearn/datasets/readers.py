"""READERS: the formats of tables by the ending of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from hierlearn.datasets.delimited import DelimitedFile
from hierlearn.datasets.parquet import ParquetFile
from hierlearn.datasets.table_file import PartitionedTableFile, TableFile
from hierlearn.errors import DataError

READERS: dict[str, type[TableFile]] = {
    ".csv": DelimitedFile,
    ".tsv": DelimitedFile,
    ".parquet": ParquetFile,
}


def open_table(path: Path | str, delimiter: str | None = None) -> TableFile:
    """Open a table by its ending; only the header is read.

    Args:
        path: the file.
        delimiter: what separates the cells of a CSV or TSV file; by default found.

    Raises:
        DataError: naming the known endings, or what is wrong with the file.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"{path}: cannot read the ending {path.suffix!r}; known: {', '.join(READERS)}"
        )
    if delimiter is None:
        return reader(path)
    if not reader.takes_delimiter:
        raise DataError(
            f"{path}: delimiter= goes with CSV and TSV files, not {reader.format_name}; leave it "
            f"out"
        )
    made: Any = reader
    return cast("TableFile", made(path, delimiter))


def open_partitioned(path: Path | str) -> PartitionedTableFile:
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
