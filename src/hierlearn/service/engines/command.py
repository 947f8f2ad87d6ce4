"""What commands run on an engine: trainings on its workers, and ``hierlearn predict --engine``."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hierlearn.cli.engines import ending_of, where

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from hierlearn.datasets.tables.stream import TableStream
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.predictor import Predictor
    from hierlearn.service.engines.part_job import PartJob

WHERE = where("Losses to train at a time; one per core, or one on a GPU.")
NOT_OF_ANSWERS = ("out", "force", "trust", "address", "workers", "gpus_per_worker", "engine")


def check_where(options: Mapping[str, Any]) -> None:
    """Raise on options that contradict each other, before any data is read."""
    from hierlearn.cli.sources import check_not_given
    from hierlearn.service.engines.executors import check_engine

    if options["address"] is not None:
        why = "a cluster with workers of its own"
        check_not_given("--address", why, {"jobs": options["jobs"]})
    check_engine(options["engine"] or "processes", options["address"], options["jobs"])


@contextmanager
def executor_of(options: Mapping[str, Any], jobs: int) -> Iterator[Executor | int]:
    """Open what the options say for some jobs; processes of this machine by default."""
    from hierlearn.service.engines.executors import open_executor
    from hierlearn.service.engines.process_executor import default_jobs
    from hierlearn.training.processes import find_device

    engine, address, workers = options["engine"] or "processes", options["address"], options["jobs"]
    gpu = (options.get("device") or "").startswith("cuda")
    if engine == "processes":
        device = find_device(options.get("device") or "auto")
        gpu, workers = device.type != "cpu", workers or default_jobs(jobs, device.type)
    if engine == "processes" and workers == 1:
        yield 1
        return
    with open_executor(engine, address, workers, gpu=gpu) as executor:
        yield executor


@contextmanager
def lend_workers(options: Mapping[str, Any]) -> Iterator[None]:
    """Let a training run its parts where the options say."""
    from hierlearn.service.engines.executors import use_executor
    from hierlearn.service.engines.process_executor import MAX_JOBS

    with executor_of(options, MAX_JOBS) as executor, use_executor(executor):
        yield


class Written(NamedTuple):
    """What was written: rows, answers above the terminal classes, no answers, formulas."""

    rows: int
    stopped: int
    unanswered: int
    formulas: int


def open_streams(
    model: Pipeline, data: str, options: Mapping[str, Any]
) -> tuple[list[TableStream], str]:
    """Return the tables to predict on, and a note about them."""
    from hierlearn.cli.model_rows import open_stream, reads_images
    from hierlearn.cli.sources import check_not_given
    from hierlearn.errors import HierlearnError, quoted
    from hierlearn.files.standard import is_standard
    from hierlearn.service.engines.part_job import check_alike, tables_in

    if reads_images(model):
        raise HierlearnError(
            "--engine ray reads tables of numbers and texts; for images, give Predictor a column "
            "of bytes"
        )
    if is_standard(data):
        raise HierlearnError("--engine ray reads files, not standard input; name a file")
    wrong = ("dataset_option", "rows", "data_dir")
    check_not_given(data, "a file", {name: options[name] for name in wrong if options[name]})
    tables = tables_in(data)
    streams = [open_stream(model, str(path), options) for path in tables]
    check_alike(streams)
    if len(streams) > 1 and options.get("embeddings"):
        check_not_given(data, "a folder", {"embeddings": options["embeddings"]})
    ignored = streams[0].ignored
    return streams, f"ignored columns: {quoted(ignored)}" if ignored else ""


def predict_on_engine(
    model: Pipeline,
    predictor: Predictor,
    streams: Sequence[TableStream],
    names: Sequence[str],
    options: Mapping[str, Any],
) -> Written:
    """Predict on a cluster, and write the answers.

    Args:
        model: the model.
        predictor: its folder, and how it answers.
        streams: the tables.
        names: the columns of the answers.
        options: those of the command.
    """
    from hierlearn.cli.interrupts import advise
    from hierlearn.pipeline.answer_file import file_names
    from hierlearn.service.engines.part_files import PartFolder, header_of, parts_beside
    from hierlearn.service.engines.part_job import ROWS, PartJob, even_rows, pieces_of

    out = Path(options["out"]).absolute()
    escape = options["escape_formulas"]
    folder = PartFolder(parts_beside(out) if out.suffix else out, ending_of(options))
    with named_from_here():
        pieces = pieces_of(streams, even_rows(model, options["part_rows"] or ROWS))
        job = PartJob(predictor, streams, pieces, names, folder, escape)
        given = {name: one for name, one in options.items() if name not in NOT_OF_ANSWERS}
        given["threshold"] = getattr(predictor.decoder, "threshold", None)  # calibrated or given
        done = folder.begin(job.plan(given), options["force"])
        advise("what is complete stays; the same command continues with what is missing")
        records = sorted([*done.values(), *written_parts(job, done, options)])
        if out.suffix:
            header = file_names(out, names, streams[0].keep, escape=escape)
            folder.join(out, records, header_of(out, header))
        else:
            folder.finish(records)
    return Written(*(sum(column) for column in zip(*(one[1:5] for one in records), strict=True)))


@contextmanager
def named_from_here() -> Iterator[None]:
    """Name the files in errors from the current folder; workers know their entire paths."""
    from hierlearn.errors import HierlearnError

    try:
        yield
    except HierlearnError as error:
        message = str(error).replace(f"{Path.cwd()}{os.sep}", "")
        raise type(error)(message) from None


def written_parts(job: PartJob, done: Mapping[int, Any], options: Mapping[str, Any]) -> list[Any]:
    """Write the parts that are missing, and show progress."""
    from hierlearn.cli.show import working
    from hierlearn.service.engines.ray_cluster import ray_session
    from hierlearn.service.engines.ray_data import predict_parts
    from hierlearn.terminal import Console, print_plain

    missing = [number for number in range(len(job.pieces)) if number not in done]
    if done:
        print_plain(Console(), f"{len(done):,} of {len(job.pieces):,} parts are there already")
    if not missing:
        return []
    counts = [piece.part.rows for piece in job.pieces]
    total = None if None in counts else sum(count or 0 for count in counts)
    rows = sum(one.rows for one in done.values())
    with (
        no_native_messages(),
        ray_session(options["address"], options["workers"]),
        working("predicting", total) as advance,
    ):

        def add(record: Any) -> None:
            nonlocal rows
            rows += record.rows
            advance(rows)

        return predict_parts(
            job,
            missing,
            workers=options["workers"],
            gpus_per_worker=options["gpus_per_worker"],
            on_record=add,
        )


@contextmanager
def no_native_messages() -> Iterator[None]:
    """Drop what the native code of Ray writes to stderr; messages of Python still appear there."""
    own = sys.stderr
    saved = os.dup(2)
    try:
        is_native = own.fileno() == 2
    except (OSError, ValueError):  # replaced by something in memory
        is_native = False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    if is_native:
        sys.stderr = os.fdopen(os.dup(saved), "w", 1, own.encoding, own.errors)
    try:
        yield
    finally:
        if is_native:
            sys.stderr.close()
            sys.stderr = own
        os.dup2(saved, 2)
        os.close(saved)
