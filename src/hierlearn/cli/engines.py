"""The options of commands that run many trainings: where these run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hierlearn.cli.generate import option
from hierlearn.engines.executors import ENGINES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Executor

ENGINE = option(
    "engine",
    str,
    "processes",
    "Where trainings run: processes of this machine, or workers of Dask or Ray.",
    metavar=f"[{'|'.join(ENGINES)}]",
)
ADDRESS = option(
    "address",
    str,
    None,
    "Scheduler of a Dask or Ray cluster; if none, --engine starts workers on this machine.",
)
WHERE = [
    option("jobs", int, None, "Trainings at a time; one per core, or one on a GPU.", min=1),
    ENGINE,
    ADDRESS,
]


@contextmanager
def executor_of(options: Mapping[str, Any], jobs: int) -> Iterator[Executor | int]:
    """Open what the options say for some jobs; a number of processes of this machine by default."""
    from hierlearn.cli.sources import check_not_given
    from hierlearn.engines.executors import open_executor

    engine, address = options["engine"], options["address"]
    if address is not None:
        why = "a cluster with workers of its own"
        check_not_given("--address", why, {"jobs": options["jobs"]})
    if engine == "processes" and address is None:
        yield jobs_of(options, jobs)
        return
    gpu = (options["device"] or "").startswith("cuda")
    with open_executor(engine, address, options["jobs"], gpu=gpu) as executor:
        yield executor


def jobs_of(options: Mapping[str, Any], jobs: int) -> int:
    """Return how many of some jobs to run at a time on this machine."""
    from hierlearn.engines.process_executor import default_jobs
    from hierlearn.training.processes import find_device

    device = find_device(options["device"] or "auto")
    given: int | None = options["jobs"]
    return given or default_jobs(jobs, device.type)
