"""``hierlearn serve``: a model behind HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hierlearn.cli import shared
from hierlearn.cli.generate import MEMORY, add_command, flag, option, takes
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.datasets import Dataset
    from hierlearn.pipeline import Pipeline

TOKEN = "HIERLEARN_TOKEN"
SHORTEST = 16  # characters of a token
LIMITS, STOP = "Limits", "Stopping"  # panels of --help
OPTIONS = [
    option("host", str, "127.0.0.1", "Address to listen on; 0.0.0.0 for every interface."),
    option(
        "allow_host",
        list[str],
        None,
        "Name by which clients may call the server, beside its address and those of this machine; "
        "* for any. Repeatable.",
        metavar="NAME",
    ),
    option("port", int, 8000, "Port to listen on; 0 for one that is free.", min=0, max=65535),
    option("threads", int, None, "Threads of torch; all cores if none.", min=1),
    option(
        "token_file",
        Path,
        None,
        f"File with the token that POST /remember asks for; also the variable {TOKEN}.",
    ),
    option(
        "calibrate",
        str,
        None,
        "Labeled rows that were used neither to train nor to select the model; requests may then "
        "name a risk.",
    ),
    option("calibrate_rows", str, None, "Split of --calibrate to use, or all."),
    flag("save", "Write what POST /remember adds to the folder of the model."),
    option("max_batch", int, 1024, "Rows that are computed together.", min=1, panel=LIMITS),
    option(
        "max_wait_ms",
        float,
        0.0,
        "Milliseconds that a batch waits for more rows while the model is idle.",
        min=0.0,
        max=1000.0,
        panel=LIMITS,
    ),
    option(
        "max_queue", int, 16384, "Rows that may wait; more get status 503.", min=1, panel=LIMITS
    ),
    option("max_rows", int, 10_000, "Rows of a request; more get 413.", min=1, panel=LIMITS),
    option("max_body", int, 16, "MiB of a request; more get 413.", min=1, panel=LIMITS),
    option(
        "timeout",
        float,
        30.0,
        "Seconds that a request may take; a connection may be silent as long.",
        min=0.001,
        panel=LIMITS,
    ),
    option(
        "max_connections",
        int,
        1000,
        "Connections at once; the one that is idle longest makes room.",
        min=2,
        panel=LIMITS,
    ),
    option(
        "drain",
        float,
        0.0,
        "Seconds to go on after the signal to stop, for a balancer to notice.",
        min=0.0,
        panel=STOP,
    ),
    option(
        "stop_timeout", float, 30.0, "Seconds to finish accepted requests.", min=1.0, panel=STOP
    ),
]


@takes(*OPTIONS, shared.MISSING, shared.TRUST, shared.DEVICE)
def serve(model: shared.ModelFolder, **options: Any) -> None:
    """Answer HTTP requests: predict, explain, remember; health, metrics, and a page on all of it.

    Requests are joined into batches. SIGTERM or Ctrl-C finishes what was accepted and ends with
    exit code 0; a second one ends at once.
    """
    import sys

    import torch

    from hierlearn.pipeline import Pipeline
    from hierlearn.pipeline.missing import checked_missing
    from hierlearn.service.app import find_fastapi
    from hierlearn.service.batching import Limits
    from hierlearn.service.model import ServedModel
    from hierlearn.service.server import Address
    from hierlearn.service.server import serve as run
    from hierlearn.service.service import Service, ServingSettings
    from hierlearn.terminal import Console, print_plain
    from hierlearn.training.processes import find_device

    find_fastapi()
    token = read_token(options["token_file"])
    check_limits(options, token)
    if options["threads"] is not None:
        torch.set_num_threads(options["threads"])
    device = find_device(options["device"])
    loaded = Pipeline.load(model, device=device, trust=options["trust"])
    loaded.missing = checked_missing(options["missing"])
    limits = Limits(
        max_batch=options["max_batch"],
        max_wait=options["max_wait_ms"] / 1000,
        max_queue=options["max_queue"],
        timeout=options["timeout"],
    )
    settings = ServingSettings(
        limits=limits,
        max_rows=min(options["max_rows"], options["max_queue"]),
        max_bytes=options["max_body"] << 20,
        body_timeout=options["timeout"],
        token=token,
        save_to=model if options["save"] else None,
        trust=options["trust"],
    )
    names = ("host", "port", "drain", "stop_timeout", "max_connections", "timeout")
    allowed = tuple(options["allow_host"] or ())
    address = Address(**{name: options[name] for name in names}, allow_host=allowed)
    console = Console()

    def started(url: str) -> None:
        print_plain(console, summary(loaded, model, token, options), f"listening on {url}")
        print_plain(console, f"docs: {url}/docs; stop with Ctrl-C or SIGTERM")
        sys.stdout.flush()

    served = ServedModel(loaded, read_calibration(loaded, options, console))
    service = Service(served, settings)
    service.warm_up()
    code = run(service, address, started)
    if code:
        raise typer.Exit(code)


def read_calibration(model: Pipeline, options: Mapping[str, Any], console: Any) -> Dataset | None:
    """Return the rows by which requests keep a risk, and say how many; None where none are."""
    from hierlearn.cli.calibrate import calibration_rows
    from hierlearn.cli.model_rows import label_notes
    from hierlearn.cli.sources import check_goes_with
    from hierlearn.errors import plural
    from hierlearn.terminal import print_plain

    if options["calibrate"] is None:
        check_goes_with({"calibrate_rows": options["calibrate_rows"]}, "--calibrate")
        return None
    found, condition = calibration_rows(model, options)
    rows, source = plural(len(found), "row"), options["calibrate"]
    print_plain(console, f"a risk is kept by {rows} of {source}, if new ones are alike{condition}")
    for note in label_notes(model, found):
        print_plain(console, note)
    return found


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


def check_limits(options: Mapping[str, Any], token: str | None) -> None:
    """Raise on options that do not go together."""
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


def summary(model: Pipeline, folder: Path, token: str | None, options: Mapping[str, Any]) -> str:
    """Say in one line what is served."""
    from hierlearn.errors import plural

    where = f", written to {folder}" if options["save"] else ", kept in memory"
    growth = "remember is off: no token" if token is None else f"remember is on{where}"
    return f"serving {folder}: {plural(len(model.hierarchy), 'class', 'classes')}; {growth}"


def add_commands(app: typer.Typer) -> None:
    """Add the command to the command line."""
    add_command(
        app,
        "serve",
        serve,
        "serve model",
        "serve model --port 9000 --token-file token.txt --save",
        panel=MEMORY,
    )
