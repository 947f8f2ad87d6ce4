"""Predict in parts on an engine: every row is answered exactly once, though workers are killed.

A part is some rows of a table, which the worker reads itself, so the files must be where it can
read them; the answers are those of one process, to the last bit. A part is written under a hidden
name and renamed, and its name depends on its rows alone.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hierlearn.errors import DataError, HierlearnError, arg, plural, quoted
from hierlearn.files.locations import RemotePath, as_location, find_files, is_address
from hierlearn.files.reading import read_json
from hierlearn.files.rows import delimiter_of
from hierlearn.files.writing import (
    STRAY,
    WriteError,
    atomic_write,
    check_output_folder,
    is_empty,
    remove,
    remove_strays,
)
from hierlearn.pipeline import memory_files
from hierlearn.pipeline.answers import answer_file
from hierlearn.pipeline.folder import FILES, digest
from hierlearn.service.engine import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hierlearn.datasets.tables.stream import TableStream
    from hierlearn.datasets.tables.table import TablePart
    from hierlearn.files.locations import Location
    from hierlearn.pipeline.predict import Predictor
    from hierlearn.service.engine import Engine


WORK, PLAN = "_hierlearn", "plan.json"
MANIFEST, SUCCESS = "_manifest.json", "_SUCCESS"
PART = re.compile(r"part-\d{5,}\.(csv|tsv|parquet)")
RECORD = re.compile(r"part-\d{5,}\.json")
BLOCK = 1 << 20  # bytes that are read at a time


class Record(NamedTuple):
    """What is known of a complete part.

    Attributes:
        part: its number, from 0.
        rows: how many rows of the table it answers.
        stopped: how many of these answers are above the terminal classes.
        unanswered: how many of these are no class at all.
        formulas: how many of its cells a spreadsheet would run as a formula.
        bytes: the size of its file.
        sha256: of its file.
    """

    part: int
    rows: int
    stopped: int
    unanswered: int
    formulas: int
    bytes: int
    sha256: str


class PartFolder:
    """A folder that part files are written into.

    Args:
        folder: the folder.
        ending: of the part files: .csv, .tsv or .parquet.
    """

    def __init__(self, folder: Path, ending: str) -> None:
        self.folder, self.ending = folder, ending

    def path(self, part: int) -> Path:
        return self.folder / f"part-{part:05d}{self.ending}"

    def record_path(self, part: int) -> Path:
        """Return the file that says that a part is complete."""
        return self.folder / WORK / f"part-{part:05d}.json"

    def begin(self, plan: Mapping[str, Any], force: bool) -> dict[int, Record]:
        """Prepare the folder; return the parts that an earlier run of the same plan completed.

        Args:
            plan: what is written, ready for JSON: the model, the rows and the options.
            force: whether the answers of another run may be replaced.

        Raises:
            WriteError: where the folder holds something else.
        """
        check_output_folder(self.folder, force=False)
        try:
            unfinished = read_json(self.folder / WORK / PLAN)
        except HierlearnError:
            unfinished = None
        if unfinished is not None and unfinished == plan:
            return {part: one for part in range(plan["parts"]) if (one := self._record(part))}
        if not is_empty(self.folder):
            known = (WORK, MANIFEST, SUCCESS)
            for path in self.folder.iterdir():
                name = path.name
                if not (name in known or PART.fullmatch(name) or STRAY.fullmatch(name)):
                    raise WriteError(
                        f"{self.folder} holds {name}, which is no part of answers, so it is not "
                        f"replaced; name another folder"
                    )
            if not force and unfinished is None:
                raise WriteError(f"{self.folder} exists; pass {arg('force', True)} to replace it")
            if not force:
                raise WriteError(
                    f"{self.folder} holds parts of another run, whose model, rows or options "
                    f"differ; pass {arg('force', True)} to replace them, or name another folder"
                )
            self.clear()
        with atomic_write(self.folder / WORK / PLAN) as file:
            file.write(json_text(plan))
        return {}

    def _record(self, part: int) -> Record | None:
        """Return the record of a part; None unless it is complete."""
        try:
            record = Record(**read_json(self.record_path(part)))
            size = self.path(part).stat().st_size
        except (HierlearnError, TypeError, OSError):
            return None
        return record if record.bytes == size else None

    def complete(
        self, part: int, rows: int, stopped: int, unanswered: int, formulas: int
    ) -> Record:
        """Write the record of a part whose file is there."""
        path = self.path(part)
        size = path.stat().st_size
        record = Record(part, rows, stopped, unanswered, formulas, size, digest(path))
        with atomic_write(self.record_path(part)) as file:
            file.write(json_text(record._asdict()))
        return record

    def finish(self, records: Sequence[Record]) -> None:
        """Write what says that all parts are there."""
        listed = [{"file": self.path(one.part).name, **one._asdict()} for one in records]
        with atomic_write(self.folder / MANIFEST) as file:
            file.write(json_text({"rows": sum(one.rows for one in records), "parts": listed}))
        with atomic_write(self.folder / SUCCESS):
            pass
        shutil.rmtree(self.folder / WORK, ignore_errors=True)
        remove_strays(self.folder)

    def clear(self) -> None:
        """Remove the parts and what belongs to them, and nothing else."""
        for path in self.folder.iterdir():
            if path.name in (MANIFEST, SUCCESS) or PART.fullmatch(path.name):
                remove(path)
        if (self.folder / WORK).is_dir():
            for path in (self.folder / WORK).iterdir():
                if path.name == PLAN or RECORD.fullmatch(path.name):
                    remove(path)
        remove_strays(self.folder)

    def join(self, path: Path, records: Sequence[Record], header: str) -> None:
        """Write the parts as one file, as one process would, and remove them.

        Args:
            path: the file.
            records: of all parts.
            header: the first line of a CSV file.
        """
        if self.ending == ".parquet":
            import pyarrow.parquet as pq

            from hierlearn.datasets.tables.write import table_writer

            names = pq.read_schema(self.path(records[0].part)).names
            with table_writer(path, names) as append:
                for one in records:
                    with pq.ParquetFile(self.path(one.part)) as file:
                        for batch in file.iter_batches(4096):
                            append(dict(zip(names, batch.columns, strict=True)))
        else:
            skip = len(header.encode())
            with atomic_write(path, "wb") as whole:
                whole.write(header.encode())
                for one in records:
                    with self.path(one.part).open("rb") as part:
                        part.seek(skip)
                        shutil.copyfileobj(part, whole, BLOCK)
        self.clear()
        with suppress(OSError):
            (self.folder / WORK).rmdir()
            self.folder.rmdir()


def header_of(path: Path, names: Sequence[str]) -> str:
    """Return the first line of a CSV or TSV file; none of Parquet."""
    from hierlearn.datasets.tables.write import DelimitedText

    if path.suffix.lower() == ".parquet":
        return ""
    return DelimitedText(names, delimiter_of(path)).header()


def json_text(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


ROWS = 1 << 17  # of a part, about
ENDINGS = (".csv", ".tsv", ".parquet")  # of tables that can be read in parts


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
                digest(path)
                for path in (folder / FILES[2], folder / memory_files.MANIFEST)
                if path.exists()
            ],
            "tables": [identity(stream.path) for stream in self.streams],
            "parts": len(self.pieces),
            "rows": [piece.part.rows for piece in self.pieces],
            "columns": [*self.streams[0].keep, *self.names],
            "ending": self.folder.ending,
            "options": {name: str(value) for name, value in sorted(options.items())},
        }

    def run(self, number: int, *, on_step: Any = None) -> Record:
        """Predict on a part, and write its file and its record."""
        del on_step  # a part is one step
        table, part, before = self.pieces[number]
        stream = self.streams[table].part(part)
        path = self.folder.path(number)
        with answer_file(path, self.names, stream.keep, escape=self.escape) as file:
            for columns, kept in self.predictor.answers(stream, Path(str(stream.path)), before):
                file.append(columns, kept)
        return self.folder.complete(number, file.rows, file.stopped, file.unanswered, file.formulas)


def pieces_of(streams: Sequence[TableStream], rows: int = ROWS) -> list[Piece]:
    """Return the parts of tables, of so many rows at most; raise where there are no rows."""
    pieces: list[Piece] = []
    before = 0
    for number, stream in enumerate(streams):
        for part in stream.parts(rows):
            pieces.append(Piece(number, part, before + part.before))
            if part.rows is None:
                if number + 1 < len(streams):
                    raise DataError(
                        f"{stream.path} can only be read from its beginning to its end, as it is "
                        f"compressed or has one column or unusual quotes; name it alone, or "
                        f"convert it to Parquet"
                    )
                return pieces
        if pieces and pieces[-1].table == number:
            before += pieces[-1].part.before + (pieces[-1].part.rows or 0)
    if not pieces:
        raise streams[0].file.no_rows()
    return pieces


def tables_in(source: str) -> list[Location]:
    """Return the tables that a source names: a file, or those of a folder or pattern by name."""
    if is_address(source) or has_magic(source):
        tables = find_files(as_location(source), ".parquet")
        return [one.absolute() if isinstance(one, Path) else one for one in tables]
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


def predict_parts(
    engine: Engine,
    job: PartJob,
    numbers: Iterable[int],
    on_record: Callable[[Record], None] = lambda _: None,
) -> list[Record]:
    """Write parts on an engine; return their records, in order.

    Args:
        engine: whose workers write.
        job: what is predicted.
        numbers: which parts.
        on_record: called for every part that is complete.

    Raises:
        HierlearnError: the first error in the order of the rows, as one process raises it.
    """
    records: list[Record] = []
    failed: dict[int, BaseException] = {}
    given = list(numbers)
    jobs = (Job(PartJob.run, job, (number,)) for number in given if not failed)
    for end in engine.run(jobs):
        if end.error is None:
            records.append(end.value)
            on_record(end.value)
        else:
            failed[end.number] = end.error
    if not failed:
        return sorted(records)
    first = min(failed)
    error = failed[first]
    if isinstance(error.__cause__, engine.killed_errors):
        table, part, _ = job.pieces[given[first]]
        raise HierlearnError(
            f"{job.streams[table].path}, rows from {part.before + 1:,} on: all workers died on "
            f"this part, perhaps for lack of memory; start fewer workers, or give smaller parts "
            f"with {arg('part_rows=')}"
        ) from error
    raise error


def resources(
    cluster: Mapping[str, float], device: str, workers: int | None, gpus_per_worker: float | None
) -> tuple[float, int]:
    """Return the GPUs of a worker, and how many workers there are.

    Args:
        cluster: what the cluster has.
        device: where the user wants to compute.
        workers: how many workers the user wants; None for as many as fit.
        gpus_per_worker: the GPUs of one; None for 1 where there are any.
    """
    there = cluster.get("GPU", 0.0)
    if gpus_per_worker is None:
        gpus_per_worker = 1.0 if there and device != "cpu" else 0.0
    if gpus_per_worker > there:
        raise HierlearnError(
            f"{arg('gpus_per_worker')} is {gpus_per_worker:g}, but the cluster has {there:g} GPUs; "
            f"leave it out"
        )
    cores = int(cluster.get("CPU", 1.0))
    fit = min(cores, int(there / gpus_per_worker)) if gpus_per_worker else cores
    if workers is not None and workers > fit:
        raise HierlearnError(
            f"workers is {workers}, but the cluster has {plural(cores, 'core')} and {there:g} GPUs "
            f"for {fit}; ask for fewer"
        )
    return gpus_per_worker, max(1, workers or fit)
