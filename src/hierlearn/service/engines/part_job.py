"""A job of predicting in parts: what every worker is told, and what it does with one part.

Nothing here knows an engine. A part is some rows of a table, which the worker reads itself, so the
files must be where it can read them; the answers are those of one process, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hierlearn.errors import DataError, HierlearnError, quoted
from hierlearn.files.locations import RemotePath, as_location, find_files, is_address
from hierlearn.pipeline.answer_file import answer_file
from hierlearn.pipeline.config_file import digest
from hierlearn.pipeline.folder import FILES
from hierlearn.pipeline.memory_files import MANIFEST
from hierlearn.pipeline.tiles import tile_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.datasets.tables.readers import TablePart
    from hierlearn.datasets.tables.stream import TableStream
    from hierlearn.files.locations import Location
    from hierlearn.pipeline.pipeline import Pipeline
    from hierlearn.pipeline.predictor import Predictor
    from hierlearn.service.engines.part_files import PartFolder, Record

ROWS = 1 << 17  # of a part, about
ENDINGS = (".csv", ".tsv", ".parquet")  # of tables that can be read in parts
ATTEMPTS = 4  # to write a part, of workers that die


class Piece(NamedTuple):
    """A part of one of several tables.

    Attributes:
        table: the number of the table.
        part: which of its rows.
        before: how many rows of all tables come before.
    """

    table: int
    part: TablePart
    before: int


@dataclass(frozen=True)
class PartJob:
    """What is predicted, and where to.

    Attributes:
        predictor: the model and its options.
        streams: the tables.
        pieces: their parts, in order.
        names: the columns of the answers.
        folder: where the part files go.
        escape: whether formulas are escaped.
    """

    predictor: Predictor
    streams: Sequence[TableStream]
    pieces: Sequence[Piece]
    names: Sequence[str]
    folder: PartFolder
    escape: bool = False

    def plan(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what tells this job from another, ready for JSON.

        Args:
            options: those that the answers depend on.
        """
        folder = Path(self.predictor.folder)
        return {
            "format": "hierlearn.parts",
            "model": [
                digest(path) for path in (folder / FILES[2], folder / MANIFEST) if path.exists()
            ],
            "tables": [identity(stream.path) for stream in self.streams],
            "parts": len(self.pieces),
            "rows": [piece.part.rows for piece in self.pieces],
            "columns": [*self.streams[0].keep, *self.names],
            "ending": self.folder.ending,
            "options": {name: str(value) for name, value in sorted(options.items())},
        }

    def run(self, number: int) -> Record:
        """Predict on a part, and write its file and its record.

        Raises:
            HierlearnError: where the workers that tried it before have all died.
        """
        table, part, before = self.pieces[number]
        stream = self.streams[table].part(part)
        if self.folder.attempt(number) > ATTEMPTS:
            raise HierlearnError(
                f"{stream.path}, rows from {part.before + 1:,} on: {ATTEMPTS} workers died on this "
                f"part, perhaps of lack of memory; start fewer workers, or give smaller parts with "
                f"part_rows="
            )
        path = self.folder.path(number)
        with answer_file(path, self.names, stream.keep, escape=self.escape) as file:
            for columns, kept in self.predictor.answers(stream, Path(str(stream.path)), before):
                file.append(columns, kept)
        return self.folder.complete(number, file.rows, file.stopped, file.unanswered, file.formulas)


def pieces_of(streams: Sequence[TableStream], rows: int = ROWS) -> list[Piece]:
    """Return the parts of tables, of so many rows at most; raise where there are no rows."""
    found: list[Piece] = []
    before = 0
    for number, stream in enumerate(streams):
        for part in stream.parts(rows):
            found.append(Piece(number, part, before + part.before))
            if part.rows is None:
                if number + 1 < len(streams):
                    raise DataError(
                        f"{stream.path} can only be read from its beginning to its end, as it is "
                        f"compressed or has one column or unusual quotes; name it alone, or "
                        f"convert it to Parquet"
                    )
                return found
        if found and found[-1].table == number:
            before += found[-1].part.before + (found[-1].part.rows or 0)
    if not found:
        raise streams[0].file.no_rows()
    return found


def even_rows(pipeline: Pipeline, rows: int) -> int:
    """Return how many rows a part has so that its batches are those of one process.

    Where rows are computed in tiles, that is any number. A backbone rounds differently in another
    batch, so there parts begin where batches do.

    Args:
        pipeline: the model.
        rows: about how many.
    """
    batch = 1 if tile_size(pipeline) else pipeline.batch_size()
    return max(1, rows // batch) * batch


def tables_in(source: str) -> list[Location]:
    """Return the tables that a source names: a file, or those of a folder or pattern by name."""
    if is_address(source) or has_magic(source):
        found = find_files(as_location(source), ".parquet")
        return [one.absolute() if isinstance(one, Path) else one for one in found]
    path = Path(source).absolute()
    if not path.is_dir():
        return [path]
    inside = [
        one
        for one in path.iterdir()
        if one.suffix.lower() in ENDINGS and one.name[0] not in "._" and one.is_file()
    ]
    if not inside:
        raise DataError(f"{source} holds no table; files end in {', '.join(ENDINGS)}")
    return [*sorted(inside)]


def check_alike(streams: Sequence[TableStream]) -> None:
    """Raise on tables of which other columns are kept or name the rows."""
    first = streams[0]
    for one in streams[1:]:
        if (one.keep, one.id_column) != (first.keep, first.id_column):
            raise DataError(
                f"{one.path} has the columns {quoted(one.file.columns, most=10)}, but {first.path} "
                f"has {quoted(first.file.columns, most=10)}; give all tables the same columns"
            )


def identity(path: Location) -> list[Any]:
    """Return by what a file is known again: its path, size and time of change."""
    if isinstance(path, RemotePath):
        filesystem, inside = path.filesystem()
        return [str(path), filesystem.ukey(inside)]
    held = path.stat()
    return [str(path), held.st_size, held.st_mtime_ns]
