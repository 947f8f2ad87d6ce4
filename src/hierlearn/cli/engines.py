"""The options of commands that run many trainings: where these run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import option
from hierlearn.engines.executors import ENGINES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Executor
    from inspect import Parameter


def where(jobs: str, panel: str | None = None) -> list[Parameter]:
    """Return the options; ``jobs`` is the sentence on how many run at a time."""
    return [
        option("jobs", int, None, jobs, min=1, panel=panel),
        option(
            "engine",
            str,
            None,
            "Where trainings run: processes of this machine, or workers of Dask or Ray.",
            metavar=f"[{'|'.join(ENGINES)}]",
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


def check_where(options: Mapping[str, Any]) -> None:
    """Raise on options that contradict each other, before any data is read."""
    from hierlearn.cli.sources import check_not_given
    from hierlearn.engines.executors import check_engine

    if options["address"] is not None:
        why = "a cluster with workers of its own"
        check_not_given("--address", why, {"jobs": options["jobs"]})
    check_engine(options["engine"] or "processes", options["address"], options["jobs"])


def check_lent(options: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    """Raise on options of a training that is no blend, or that contradict each other."""
    from hierlearn.cli.sources import check_goes_with

    if chosen.get("effort") != "best":
        check_goes_with({name: options[name] for name in NAMES}, "--effort best")
    check_where(options)


@contextmanager
def executor_of(options: Mapping[str, Any], jobs: int) -> Iterator[Executor | int]:
    """Open what the options say for some jobs; processes of this machine by default."""
    from hierlearn.engines.executors import open_executor
    from hierlearn.engines.process_executor import default_jobs
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
def lent_executor(options: Mapping[str, Any], chosen: Mapping[str, Any]) -> Iterator[None]:
    """Lend a training with effort best what the options say, if they say anything.

    Args:
        options: of the command line.
        chosen: those of the training.
    """
    from hierlearn.engines.executors import use_executor
    from hierlearn.engines.process_executor import MAX_JOBS

    given = {name: options[name] for name in NAMES}
    if not any(given.values()):
        yield
        return
    named = {**given, "device": chosen.get("device")}
    with executor_of(named, MAX_JOBS) as executor, use_executor(executor):
        yield
