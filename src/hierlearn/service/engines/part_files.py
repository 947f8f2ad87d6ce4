"""A folder of part files, each of which appears once and complete, whoever is killed meanwhile.

    part-00000.parquet, part-00001.parquet, ...   answers, in the order of the rows
    _manifest.json                                every part with its rows and SHA-256, at the end
    _SUCCESS                                      empty, at the very end
    _hierlearn/plan.json                          what is being written, until the end
    _hierlearn/part-00000.json                    that a part is complete, until the end
    _hierlearn/part-00000.tries                   a letter for every attempt, until it is

A part is written under a hidden name and renamed, and its record follows. A part that is written
again, since a worker died, replaces itself by the same bytes. Whoever finds the plan of the same
run writes what is missing. Names that begin with ``_`` are skipped by Ray, Spark, Dask and pyarrow.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hierlearn.errors import HierlearnError
from hierlearn.files.delimiters import delimiter_of
from hierlearn.files.outputs import check_output_folder
from hierlearn.files.reading import read_json
from hierlearn.files.writing import (
    STRAY,
    WriteError,
    append_text,
    atomic_write,
    is_empty,
    remove,
    remove_strays,
)
from hierlearn.pipeline.config_file import digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

WORK, PLAN = "_hierlearn", "plan.json"
MANIFEST, SUCCESS = "_manifest.json", "_SUCCESS"
PART = re.compile(r"part-\d{5,}\.(csv|tsv|parquet)")
RECORD = re.compile(r"part-\d{5,}\.(json|tries)")
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
        """Return the file of a part."""
        return self.folder / f"part-{part:05d}{self.ending}"

    def record_path(self, part: int) -> Path:
        """Return the file that says that a part is complete."""
        return self.folder / WORK / f"part-{part:05d}.json"

    def tries_path(self, part: int) -> Path:
        """Return the file that counts the attempts to write a part."""
        return self.folder / WORK / f"part-{part:05d}.tries"

    def attempt(self, part: int) -> int:
        """Return how many attempts to write a part there have been, with the one that begins."""
        path = self.tries_path(part)
        append_text(path, "x")
        return path.stat().st_size

    def begin(self, plan: Mapping[str, Any], force: bool) -> dict[int, Record]:
        """Prepare the folder; return the parts that an earlier run of the same plan completed.

        Args:
            plan: what is written, ready for JSON: the model, the rows and the options.
            force: whether the answers of another run may be replaced.

        Raises:
            WriteError: where the folder holds something else.
        """
        check_output_folder(self.folder, force=False)
        found = self._plan()
        if found is not None and found == plan:
            for part in range(plan["parts"]):
                remove(self.tries_path(part))
            return {part: one for part in range(plan["parts"]) if (one := self._record(part))}
        if not is_empty(self.folder):
            self._check_replaceable(found, force)
            self.clear()
        with atomic_write(self.folder / WORK / PLAN) as file:
            file.write(json_text(plan))
        return {}

    def _plan(self) -> Any:
        """Return the plan of a run that was not finished; None where there is none."""
        try:
            return read_json(self.folder / WORK / PLAN)
        except HierlearnError:
            return None

    def _record(self, part: int) -> Record | None:
        """Return the record of a part; None unless it is complete."""
        try:
            found = Record(**read_json(self.record_path(part)))
            size = self.path(part).stat().st_size
        except (HierlearnError, TypeError, OSError):
            return None
        return found if found.bytes == size else None

    def _check_replaceable(self, plan: Any, force: bool) -> None:
        """Raise unless the folder holds nothing but answers, and those may be replaced."""
        for path in self.folder.iterdir():
            ours = (WORK, MANIFEST, SUCCESS)
            if not (path.name in ours or PART.fullmatch(path.name) or STRAY.fullmatch(path.name)):
                raise WriteError(
                    f"{self.folder} holds {path.name}, which is no part of answers, so it is not "
                    f"replaced; name another folder"
                )
        if force:
            return
        if plan is None:
            raise WriteError(f"{self.folder} exists; pass force=True to replace it")
        raise WriteError(
            f"{self.folder} holds parts of another run, whose model, rows or options differ; pass "
            f"force=True to replace them, or name another folder"
        )

    def complete(
        self, part: int, rows: int, stopped: int, unanswered: int, formulas: int
    ) -> Record:
        """Write the record of a part whose file is there."""
        path = self.path(part)
        size = path.stat().st_size
        record = Record(part, rows, stopped, unanswered, formulas, size, digest(path))
        with atomic_write(self.record_path(part)) as file:
            file.write(json_text(record._asdict()))
        remove(self.tries_path(part))
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
            self._join_parquet(path, records)
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

    def _join_parquet(self, path: Path, records: Sequence[Record]) -> None:
        import pyarrow.parquet as pq

        from hierlearn.datasets.tables.write import table_writer

        names = pq.read_schema(self.path(records[0].part)).names
        with table_writer(path, names) as append:
            for one in records:
                with pq.ParquetFile(self.path(one.part)) as file:
                    for batch in file.iter_batches(4096):
                        append(dict(zip(names, batch.columns, strict=True)))


def parts_beside(path: Path) -> Path:
    """Return the folder that holds the parts of a file until it is complete."""
    return path.with_name(f"{path.name}.parts")


def header_of(path: Path, names: Sequence[str]) -> str:
    """Return the first line of a CSV or TSV file; none of Parquet."""
    from hierlearn.datasets.tables.write import DelimitedText

    if path.suffix.lower() == ".parquet":
        return ""
    return DelimitedText(names, delimiter_of(path)).header()


def json_text(value: Any) -> str:
    """Return a value as a file of JSON."""
    return json.dumps(value, indent=1) + "\n"
