"""Jobs: entries of a study one after the other, or several at a time in processes of their own.

A process that trains alone on one core wastes nothing on waiting for another core, so on a CPU
several jobs of few threads finish sooner than one job of many.
"""

from __future__ import annotations

import os
import queue
import signal
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.errors import HierlearnError
from hierlearn.studies.runner import Job, Outcome, do_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hierlearn.datasets import Dataset

MOST = 8  # processes that are started without being asked for
PATIENCE = 0.2  # seconds between two looks at what the processes report


def cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def usual_jobs(entries: int, device: torch.device) -> int:
    """Return how many jobs to run at a time: one on a graphics processor, else one a core."""
    return 1 if device.type != "cpu" else max(1, min(MOST, entries, cores()))


def do_jobs(
    tasks: Mapping[int, Job],
    dataset: Dataset,
    jobs: int,
    on_step: Callable[[int, int, int], None] | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """Do jobs, and give each with its number as soon as it is done.

    Args:
        tasks: the jobs by number.
        dataset: what they train and are judged on.
        jobs: how many at a time.
        on_step: told the number, the step and all steps of a training.
    """
    if jobs == 1 or len(tasks) < 2:
        for number, job in tasks.items():
            told = None if on_step is None else teller(on_step, number)
            yield number, do_job(job, dataset, told)
        return
    context = get_context("spawn")  # a fork would inherit the threads of torch, and hang
    steps, stop = context.Queue(), context.Event()
    threads = max(1, cores() // jobs)
    with ProcessPoolExecutor(
        min(jobs, len(tasks)), context, begin_worker, (dataset, steps, stop, threads)
    ) as pool:
        try:
            doing: dict[Future[Outcome], int] = {
                pool.submit(do_in_worker, number, job): number for number, job in tasks.items()
            }
            while doing:
                finished, _ = wait(doing, timeout=PATIENCE, return_when=FIRST_COMPLETED)
                report(steps, on_step)
                for future in finished:
                    yield doing.pop(future), future.result()
        except BrokenProcessPool:
            raise HierlearnError(
                "a process of the study was killed, perhaps for want of memory; the same command "
                "goes on with what is missing: try it with jobs=1"
            ) from None
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def teller(on_step: Callable[[int, int, int], None], number: int) -> Callable[[int, int], None]:
    """Return what reports the steps of one job."""
    return lambda step, of: on_step(number, step, of)


def report(steps: Any, on_step: Callable[[int, int, int], None] | None) -> None:
    """Pass on what the processes have reported since."""
    while True:
        try:
            told = steps.get_nowait()
        except queue.Empty:
            return
        if on_step is not None:
            on_step(*told)


# ---------------------------------------------------------------------- in the other processes

_here: dict[str, Any] = {}  # what a worker process was begun with


class StoppedError(Exception):
    """The study ended before this job."""


def begin_worker(dataset: Dataset, steps: Any, stop: Any, threads: int) -> None:
    """Make a process ready for jobs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that was asked decides
    torch.set_num_threads(threads)
    _here.update(dataset=dataset, steps=steps, stop=stop)


def do_in_worker(number: int, job: Job) -> Outcome:
    """Do a job, report its steps, and end it early where nobody waits for it."""
    parent = parent_process()

    def on_step(step: int, of: int) -> None:
        if _here["stop"].is_set() or (parent is not None and not parent.is_alive()):
            raise StoppedError
        if step == of or step % max(1, of // 100) == 0:
            _here["steps"].put((number, step, of))

    return do_job(job, _here["dataset"], on_step)
