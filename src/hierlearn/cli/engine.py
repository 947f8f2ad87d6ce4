"""``hierlearn predict --engine ray``: the options, and predicting on a cluster."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hierlearn.cli.generate import option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hierlearn.datasets.streaming import TableStream
    from hierlearn.engines.part_job import PartJob
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.predictor import Predictor

ENGINES = ("ray",)
FORMATS = ("parquet", "csv", "tsv")
CLUSTER = "On a cluster"  # a panel of --help
ENGINE_OPTIONS = [
    option(
        "engine",
        str,
        None,
        "Predict on Ray; --out may be a folder of parts, and the data a folder of tables.",
        metavar="[ray]",
        panel=CLUSTER,
    ),
    option(
        "address",
        str,
        None,
        "Cluster to use: auto, or ray://host:port; one is started here if none.",
        panel=CLUSTER,
    ),
    option("workers", int, None, "Workers: one per GPU or core if none.", panel=CLUSTER, min=1),
    option(
        "gpus_per_worker",
        float,
        None,
        "GPUs of a worker: 1 if none is given and there are any.",
        panel=CLUSTER,
        min=0,
    ),
    option("part_rows", int, None, "Rows of a part, about: 131072 if none.", panel=CLUSTER, min=1),
    option(
        "part_format",
        str,
        None,
        "Format of the parts where --out is a folder; parquet if none.",
        metavar=f"[{'|'.join(FORMATS)}]",
        panel=CLUSTER,
    ),
]
NOT_OF_ANSWERS = ("out", "force", "trust", "address", "workers", "gpus_per_worker", "engine")


class Written(NamedTuple):
    """What was written: rows, answers above the terminal classes, no answers, formulas."""

    rows: int
    stopped: int
    unanswered: int
    formulas: int


def check_engine(options: Mapping[str, Any]) -> None:
    """Raise on an engine that is not known, and on options that do not go together."""
    from hierlearn.cli.predict import shown_output
    from hierlearn.cli.sources import check_goes_with
    from hierlearn.datasets.writing import check_ending
    from hierlearn.errors import HierlearnError, unknown_name
    from hierlearn.files.standard import is_standard

    out: Path = options["out"]
    if options["engine"] is None:
        of_engine = ("address", "workers", "gpus_per_worker", "part_rows", "part_format")
        check_goes_with({name: options[name] for name in of_engine}, "--engine ray")
        check_ending(out)
        return
    if options["engine"] not in ENGINES:
        raise HierlearnError(unknown_name("engine", options["engine"], ENGINES))
    if options["zero_shot"]:
        raise HierlearnError("--engine ray reads a model folder; leave --zero-shot out")
    if out.suffix or is_standard(out):
        check_ending(out)
        if out.suffix.lower()[1:] not in FORMATS:
            raise HierlearnError(
                f"--engine ray writes {', '.join(FORMATS)}, not {shown_output(out)}; name such a "
                f"file, or a folder"
            )
        check_goes_with({"part_format": options["part_format"]}, "a folder in --out")
    elif options["part_format"] not in (None, *FORMATS):
        raise HierlearnError(unknown_name("format", options["part_format"], FORMATS))


def ending_of(options: Mapping[str, Any]) -> str:
    """Return the ending of the files that are written."""
    from hierlearn.datasets.writing import written_ending

    out: Path = options["out"]
    return written_ending(out) or f".{options['part_format'] or FORMATS[0]}"


def open_streams(
    model: Pipeline, data: str, options: Mapping[str, Any]
) -> tuple[list[TableStream], str]:
    """Return the tables to predict on, and a note about them."""
    from hierlearn.cli.model_rows import open_stream, reads_images
    from hierlearn.cli.sources import check_not_given
    from hierlearn.engines.part_job import check_alike, tables_in
    from hierlearn.errors import HierlearnError, quoted
    from hierlearn.files.standard import is_standard

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
    from hierlearn.engines.part_files import PartFolder, header_of, parts_beside
    from hierlearn.engines.part_job import ROWS, PartJob, even_rows, pieces_of
    from hierlearn.pipeline.answer_file import file_names

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
    from hierlearn.engines.ray_cluster import ray_session
    from hierlearn.engines.ray_data import predict_parts
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
