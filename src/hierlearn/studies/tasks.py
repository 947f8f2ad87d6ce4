"""Tasks: candidates of a study one after the other, or several at a time in processes of their own.

A process that trains alone on one core does not wait for another core, so on a CPU several
processes of few threads finish sooner than one process of many.
"""

from __future__ import annotations

import os
import queue
import signal
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_all_start_methods, get_context
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.errors import HierlearnError
from hierlearn.studies.orphans import end_with_parent
from hierlearn.studies.runner import Result, Task, run_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.context import BaseContext

    from hierlearn.datasets import Dataset

MAX_JOBS = 8  # processes that are started without being asked for
POLL_SECONDS = 0.2  # between two looks at what the processes report
PRELOADED = ["hierlearn.studies.runner", "torch._dynamo"]  # torch.optim imports the latter


def count_cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def default_jobs(candidates: int, device: torch.device) -> int:
    """Return how many candidates to train at a time: one on a GPU, else one per core."""
    return 1 if device.type != "cpu" else max(1, min(MAX_JOBS, candidates, count_cores()))


def run_tasks(
    tasks: Mapping[int, Task],
    dataset: Dataset,
    jobs: int,
    on_step: Callable[[int, int, int], None] | None = None,
) -> Iterator[tuple[int, Result]]:
    """Run tasks, and yield each number with its result as soon as it is there.

    Args:
        tasks: the tasks by number.
        dataset: what they train and are evaluated on.
        jobs: how many at a time.
        on_step: called with the number, the step and the number of steps.
    """
    if jobs == 1 or len(tasks) < 2:
        for number, task in tasks.items():
            yield number, run_task(task, dataset, on_step and with_number(on_step, number))
        return
    context = start_context(any(task.device != "cpu" for task in tasks.values()))
    steps, stop = context.Queue(), context.Event()
    threads = max(1, count_cores() // jobs)
    with ProcessPoolExecutor(
        min(jobs, len(tasks)), context, init_worker, (dataset, steps, stop, threads)
    ) as pool:
        try:
            running: dict[Future[Result], int] = {
                pool.submit(run_in_worker, number, task): number for number, task in tasks.items()
            }
            while running:
                finished, _ = wait(running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                forward_steps(steps, on_step)
                for future in finished:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            raise HierlearnError(
                "a process of the study ended early: it was killed, perhaps for lack of memory, or "
                'a script of your own starts the study outside of if __name__ == "__main__"; the '
                "same command continues with what is missing: try it with jobs=1"
            ) from None
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def start_context(gpu: bool) -> BaseContext:
    """Return how processes start: never as a fork of this one, whose threads it would lack.

    On a CPU they are forks of a server that has done nothing but import, once for all of them. A
    GPU is used in processes of their own from the beginning.
    """
    if gpu or "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def with_number(
    on_step: Callable[[int, int, int], None], number: int
) -> Callable[[int, int], None]:
    """Return the callback of one task."""
    return lambda step, of: on_step(number, step, of)


def forward_steps(steps: Any, on_step: Callable[[int, int, int], None] | None) -> None:
    """Pass on what the processes have reported since."""
    while True:
        try:
            reported = steps.get_nowait()
        except queue.Empty:
            return
        if on_step is not None:
            on_step(*reported)


# ---------------------------------------------------------------------- in the other processes

_worker: dict[str, Any] = {}  # what a worker process was started with


class StoppedError(Exception):
    """The study ended before this task."""


def init_worker(dataset: Dataset, steps: Any, stop: Any, threads: int) -> None:
    """Prepare a process for tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides
    end_with_parent()
    torch.set_num_threads(threads)
    _worker.update(dataset=dataset, steps=steps, stop=stop)


def run_in_worker(number: int, task: Task) -> Result:
    """Run a task, report its steps, and stop early where nobody waits for it."""

    def on_step(step: int, of: int) -> None:
        if _worker["stop"].is_set():
            raise StoppedError
        if step == of or step % max(1, of // 100) == 0:
            _worker["steps"].put((number, step, of))

    return run_task(task, _worker["dataset"], on_step)
