"""Options of commands that can run on many processes or machines; ``hierlearn.service`` runs them.

What runs there comes in through the entry points of ``hierlearn.engines``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import option
from hierlearn.registry import find_entry_point

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from inspect import Parameter
    from pathlib import Path

GROUP = "hierlearn.engines"
NAMES = ("jobs", "engine", "address")
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


def where(jobs: str, panel: str | None = None) -> list[Parameter]:
    """Return the options; ``jobs`` is the sentence on how many run at a time."""
    return [
        option("jobs", int, None, jobs, min=1, panel=panel),
        option(
            "engine",
            str,
            None,
            "Where trainings run: processes of this machine, or workers of Dask or Ray.",
            metavar="[processes|dask|ray]",
            panel=panel,
        ),
        option(
            "address",
            str,
            None,
            "Scheduler of a Dask or Ray cluster; if none, --engine starts workers here.",
            panel=panel,
        ),
    ]


NAMES = ("jobs", "engine", "address")
WHERE = where("Losses to train at a time; one per core, or one on a GPU.")


def check_lent(options: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    """Raise on options of a training that is no blend, or that contradict each other."""
    from hierlearn.cli.sources import check_goes_with

    if chosen.get("effort") != "best":
        check_goes_with({name: options[name] for name in NAMES}, "--effort best")
    if any(options[name] is not None for name in NAMES):
        find_entry_point(GROUP, "check")(options)


@contextmanager
def lent_executor(options: Mapping[str, Any], chosen: Mapping[str, Any]) -> Iterator[None]:
    """Lend a training with effort best what the options say, if they say anything.

    Args:
        options: of the command line.
        chosen: those of the training.
    """
    given = {name: options[name] for name in NAMES}
    if not any(given.values()):
        yield
        return
    named = {**given, "device": chosen.get("device")}
    with find_entry_point(GROUP, "lend")(named):
        yield


def check_engine(options: Mapping[str, Any]) -> None:
    """Raise on an engine that is not known, and on options that do not go together."""
    from hierlearn.cli.predict import shown_output
    from hierlearn.cli.sources import check_goes_with
    from hierlearn.datasets.tables.write import check_ending
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
    from hierlearn.datasets.tables.write import written_ending

    out: Path = options["out"]
    return written_ending(out) or f".{options['part_format'] or FORMATS[0]}"
