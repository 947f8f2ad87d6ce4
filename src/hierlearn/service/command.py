"""``hierlearn serve``: a model behind HTTP."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import MEMORY, options, takes
from hierlearn.cli.generate import add_commands as register
from hierlearn.cli.predict import ending_of
from hierlearn.errors import HierlearnError, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from hierlearn.datasets import Dataset
    from hierlearn.datasets.tables.stream import TableStream
    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.predict import Predictor
    from hierlearn.service.parts import PartJob, Record


TOKEN = "HIERLEARN_TOKEN"
SHORTEST = 16  # characters of a token
LIMITS, STOP = "Limits", "Stopping"  # panels of --help
OPTIONS = [
    *options(
        host=(str, "Address to listen on; 0.0.0.0 for every interface.", {"default": "127.0.0.1"}),
        allow_host=(
            list[str],
            "Name by which clients may call the server, beside its address and those of this "
            "machine; * for any. Repeatable.",
            {"metavar": "NAME"},
        ),
        port=(
            int,
            "Port to listen on; 0 for one that is free.",
            {"default": 8000, "min": 0, "max": 65535},
        ),
        threads=(int, "Threads of torch; all cores if none.", {"min": 1}),
        token_file=(
            Path,
            f"File with the token that POST /remember asks for; also the variable {TOKEN}.",
        ),
        calibrate=(
            str,
            "Labeled rows that were used neither to train nor to select the model; requests may "
            "then name a risk.",
        ),
        calibrate_rows=(str, "Split of --calibrate to use, or all."),
        save=(bool, "Write what POST /remember adds to the folder of the model."),
    ),
    *options(
        LIMITS,
        max_batch=(int, "Rows that are computed together.", {"default": 1024, "min": 1}),
        max_wait_ms=(
            float,
            "Milliseconds that a batch waits for more rows while the model is idle.",
            {"default": 0.0, "min": 0.0, "max": 1000.0},
        ),
        max_queue=(int, "Rows that may wait; more get status 503.", {"default": 16384, "min": 1}),
        max_rows=(int, "Rows of a request; more get 413.", {"default": 10000, "min": 1}),
        max_body=(int, "MiB of a request; more get 413.", {"default": 16, "min": 1}),
        timeout=(
            float,
            "Seconds that a request may take; a connection may be silent as long.",
            {"default": 30.0, "min": 0.001},
        ),
        max_connections=(
            int,
            "Connections at once; the one that is idle longest makes room.",
            {"default": 1000, "min": 2},
        ),
    ),
    *options(
        STOP,
        drain=(
            float,
            "Seconds to go on after the signal to stop, for a balancer to notice.",
            {"default": 0.0, "min": 0.0},
        ),
        stop_timeout=(float, "Seconds to finish accepted requests.", {"default": 30.0, "min": 1.0}),
    ),
]


@takes(*OPTIONS, shared.MISSING, shared.TRUST, shared.DEVICE)
def serve(model: shared.ModelFolder, **options: Any) -> None:
    """Answer HTTP requests: predict, explain, remember; health, metrics, and a page on all of it.

    Requests are joined into batches. SIGTERM or Ctrl-C finishes what was accepted and ends with
    exit code 0; a second one ends at once.

    Examples:
        serve model
        serve model --port 9000 --token-file token.txt --save
    """
    import torch

    from hierlearn.cli.rows import load_model
    from hierlearn.service.model import ServedModel
    from hierlearn.terminal import Console, print_plain

    try:
        from hierlearn.service.batching import Limits, Service, ServingSettings
        from hierlearn.service.server import serve as run
    except ImportError as error:
        raise HierlearnError(
            f"serving needs fastapi, uvicorn and prometheus-client ({error}); install them with: "
            f"pip install fastapi uvicorn prometheus-client"
        ) from None

    token = read_token(options["token_file"])
    if options["save"] and token is None:
        raise HierlearnError(
            f"--save writes what POST /remember adds, which needs a token; give --token-file, or "
            f"set {TOKEN}"
        )
    if options["max_queue"] < options["max_batch"]:
        raise HierlearnError(
            f"--max-queue {options['max_queue']:,} must be at least --max-batch "
            f"{options['max_batch']:,}; raise the one or lower the other"
        )
    if options["threads"] is not None:
        torch.set_num_threads(options["threads"])
    loaded = load_model(model, options)
    names = ("host", "port", "drain", "stop_timeout", "max_connections", "trust")
    settings = ServingSettings(
        **{name: options[name] for name in names},
        allow_host=tuple(options["allow_host"] or ()),
        limits=Limits(
            max_batch=options["max_batch"],
            max_wait=options["max_wait_ms"] / 1000,
            max_queue=options["max_queue"],
            timeout=options["timeout"],
        ),
        max_rows=min(options["max_rows"], options["max_queue"]),
        max_bytes=options["max_body"] << 20,
        body_timeout=options["timeout"],
        token=token,
        save_to=model if options["save"] else None,
    )
    console = Console()

    def started(url: str) -> None:
        where = f", written to {model}" if options["save"] else ", kept in memory"
        growth = "remember is off: no token" if token is None else f"remember is on{where}"
        classes = plural(len(loaded.hierarchy), "class", "classes")
        print_plain(console, f"serving {model}: {classes}; {growth}", f"listening on {url}")
        print_plain(console, f"docs: {url}/docs; stop with Ctrl-C or SIGTERM")
        sys.stdout.flush()

    served = ServedModel(loaded, read_calibration(loaded, options, console))
    service = Service(served, settings)
    service.warm_up()
    code = run(service, started)
    if code:
        raise typer.Exit(code)


def read_calibration(model: Pipeline, options: Mapping[str, Any], console: Any) -> Dataset | None:
    """Return the rows by which requests keep a risk, and say how many; None where none are."""
    from hierlearn.cli.predict import calibration_rows
    from hierlearn.cli.rows import check_goes_with, label_notes
    from hierlearn.terminal import print_plain

    if options["calibrate"] is None:
        check_goes_with(options, ("calibrate_rows",), "--calibrate")
        return None
    dataset, condition = calibration_rows(model, options)
    rows, source = plural(len(dataset), "row"), options["calibrate"]
    print_plain(console, f"a risk is kept by {rows} of {source}, if new ones are alike{condition}")
    for note in label_notes(model, dataset):
        print_plain(console, note)
    return dataset


def read_token(path: Path | None) -> str | None:
    """Return the token of a file or of the environment; None where there is none."""
    from hierlearn.files.reading import read_bytes

    source, token = TOKEN, os.environ.get(TOKEN)
    if path is not None:
        source = str(path)
        try:
            token = read_bytes(path).decode("ascii").strip()
        except UnicodeDecodeError:
            raise HierlearnError(f"{path} is not ASCII; a token is letters and digits") from None
    if token is None:
        return None
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise HierlearnError(
            f"the token in {source} must have at least {SHORTEST} printable ASCII characters, "
            f"without spaces"
        )
    return token


def add_commands(app: typer.Typer) -> None:
    register(app, serve, panel=MEMORY)


NOT_OF_ANSWERS = ("out", "force", "trust", "address", "workers", "gpus_per_worker", "engine")


def check_where(options: Mapping[str, Any]) -> None:
    """Raise on options that contradict each other, before any data is read."""
    from hierlearn.cli.rows import check_not_given
    from hierlearn.service.engine import check_engine

    if options["address"] is not None:
        why = "a cluster with workers of its own"
        check_not_given("--address", why, options, "jobs")
    check_engine(options["engine"] or "processes", options["address"], options["jobs"])


@contextmanager
def executor_of(options: Mapping[str, Any], jobs: int) -> Iterator[Executor | int]:
    """Open what the options say for some jobs; processes of this machine by default."""
    from hierlearn.service.engine import default_jobs, open_executor
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
    from hierlearn.service.engine import MAX_JOBS, use_executor

    with executor_of(options, MAX_JOBS) as executor, use_executor(executor):
        yield


def open_streams(
    model: Pipeline, data: str, options: Mapping[str, Any]
) -> tuple[list[TableStream], str]:
    """Return the tables to predict on, and a note about them."""
    from hierlearn.cli.rows import check_not_given, open_stream, reads_images
    from hierlearn.errors import HierlearnError, quoted
    from hierlearn.files.locations import is_standard
    from hierlearn.service.parts import check_alike, tables_in

    if reads_images(model):
        raise HierlearnError(
            "--engine ray reads tables of numbers and texts; for images, give Predictor a column "
            "of bytes"
        )
    if is_standard(data):
        raise HierlearnError("--engine ray reads files, not standard input; name a file")
    check_not_given(data, "a file", options, "dataset_option", "rows", "data_dir")
    tables = tables_in(data)
    streams = [open_stream(model, str(path), options) for path in tables]
    check_alike(streams)
    if len(streams) > 1 and options.get("embeddings"):
        check_not_given(data, "a folder", options, "embeddings")
    ignored = streams[0].ignored
    return streams, f"ignored columns: {quoted(ignored)}" if ignored else ""


def predict_on_engine(
    model: Pipeline,
    predictor: Predictor,
    streams: Sequence[TableStream],
    names: Sequence[str],
    options: Mapping[str, Any],
) -> Record:
    """Predict on a cluster, and write the answers.

    Args:
        model: the model.
        predictor: its folder, and how it answers.
        streams: the tables.
        names: the columns of the answers.
        options: those of the command.
    """
    from hierlearn.cli.output import advise
    from hierlearn.pipeline.answers import file_names
    from hierlearn.service.parts import (
        ROWS,
        PartFolder,
        PartJob,
        Record,
        header_of,
        pieces_of,
    )

    out = Path(options["out"]).absolute()
    escape = options["escape_formulas"]
    parts = out.with_name(f"{out.name}.parts") if out.suffix else out
    folder = PartFolder(parts, ending_of(options))
    try:
        # A backbone rounds differently in another batch, so parts begin where batches do.
        batch = 1 if model.tile_size else model.batch_size()
        rows = max(1, (options["part_rows"] or ROWS) // batch) * batch
        pieces = pieces_of(streams, rows)
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
    except HierlearnError as error:  # workers know the entire paths of files
        message = error.message.replace(f"{Path.cwd()}{os.sep}", "")
        raise type(error)(message) from None
    columns = zip(*(one[1:6] for one in records), strict=True)
    rows, stopped, unanswered, formulas, size = map(sum, columns)
    return Record(len(records), rows, stopped, unanswered, formulas, size, "")


def written_parts(
    job: PartJob, done: Mapping[int, Record], options: Mapping[str, Any]
) -> list[Record]:
    """Write the parts that are missing, and show progress."""
    from hierlearn.cli.output import working
    from hierlearn.service.clusters import RayEngine
    from hierlearn.service.parts import predict_parts, resources
    from hierlearn.terminal import Console, print_plain

    missing = [number for number in range(len(job.pieces)) if number not in done]
    if done:
        print_plain(Console(), f"{len(done):,} of {len(job.pieces):,} parts are there already")
    if not missing:
        return []
    counts = [piece.part.rows for piece in job.pieces]
    total = None if None in counts else sum(count or 0 for count in counts)
    rows = sum(one.rows for one in done.values())
    workers = options["workers"]
    with working("predicting", total) as advance:

        def add(record: Record) -> None:
            nonlocal rows
            rows += record.rows
            advance(rows)

        engine = RayEngine(options["address"], workers)
        try:
            device, gpus = job.predictor.device, options["gpus_per_worker"]
            engine.set_resources(*resources(engine.resources, device, workers, gpus))
            return predict_parts(engine, job, missing, add)
        finally:
            engine.shutdown(cancel_futures=True)
