"""Files: text and delimited rows; see reading.py and writing.py for the two doors."""

from hierlearn.files.reading import read_text
from hierlearn.files.rows import (
    Start,
    announced_delimiter,
    read_rows,
    refuse_duplicates,
    stream_rows,
)

__all__ = [
    "Start",
    "announced_delimiter",
    "read_rows",
    "read_text",
    "refuse_duplicates",
    "stream_rows",
]
