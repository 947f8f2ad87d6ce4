"""Shared trials: several processes or machines work on one search through a storage of Optuna.

Every process that runs the same search with the same storage takes trials that nobody has taken,
until all have a value. Who takes a trial says so every BEAT_SECONDS; a trial whose process is
silent for SILENT_SECONDS is taken for dead, marked as failed, and taken by another. A trial is a
pure function, so one that was run twice all the same has one value.
"""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError
from hierlearn.lab.trials import run_trial
from hierlearn.service.engine import Job, engine_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from hierlearn.datasets import Dataset
    from hierlearn.lab.trials import Trial

BEAT_SECONDS = 10.0
SILENT_SECONDS = 60.0
POLL_SECONDS = 1.0  # between two looks at the trials of others
ATTEMPTS = 5  # to open a storage
LOCK_SECONDS = 100  # that SQLite waits for another process
POINT, BEAT, ENDED = "point", "beat", "ended"  # a parameter, and attributes of a trial


def share_trials(
    dataset: Dataset,
    trials: Sequence[Trial],
    storage: str,
    larger: bool,
    executor: Executor | int = 1,
    on_trial: Callable[[int, int], None] | None = None,
) -> list[float | None]:
    """Return the values of trials, in order, whoever ran them.

    Args:
        dataset: the rows.
        trials: what to try.
        storage: a URL of a database, such as sqlite:///tune.db, or the path of a journal file.
        larger: whether larger values are better.
        executor: where; every worker takes trials by itself.
        on_trial: called with the number of trials done and the number of all trials.
    """
    search = Search(storage, [one.key(dataset.digest()) for one in trials], larger)
    args = (storage, list(trials), search.keys, larger)
    with engine_of(executor) as engine:
        if engine.workers == 1:
            take_trials(dataset, *args, on_trial=on_trial)
        else:
            jobs = [
                Job(take_trials, dataset, args) for _ in range(min(engine.workers, len(trials)))
            ]
            for end in engine.run(jobs):
                end.result()
    values = search.values()
    return [values[key] for key in search.keys]


def take_trials(
    dataset: Dataset,
    storage: str,
    trials: Sequence[Trial],
    keys: Sequence[str],
    larger: bool,
    *,
    on_step: Callable[[int, int], None] | None = None,
    on_trial: Callable[[int, int], None] | None = None,
) -> None:
    """Run trials that nobody else runs, until all have a value."""
    search = Search(storage, keys, larger)
    while len(values := search.values()) < len(keys):
        if on_trial is not None:
            on_trial(len(values), len(keys))
        taken = search.take()
        if taken is None:
            time.sleep(POLL_SECONDS)
            continue
        key, trial = taken
        with beating(trial):
            value = run_trial(dataset, trials[keys.index(key)], on_step)
        search.end(trial, value)
    if on_trial is not None:
        on_trial(len(keys), len(keys))


class Search:
    """A study of Optuna whose parameter is one of the points of a search, by key.

    Args:
        storage: a URL or a path.
        keys: digests of all trials; with them, the search is the same wherever it is opened.
        larger: whether larger values are better.
    """

    def __init__(self, storage: str, keys: Sequence[str], larger: bool) -> None:
        self.optuna, self.keys = import_optuna(), list(dict.fromkeys(keys))
        self.states = self.optuna.trial.TrialState
        digest = hashlib.sha256(" ".join(self.keys).encode()).hexdigest()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.study = self.optuna.create_study(
                    study_name=f"hierlearn-{digest[:32]}",
                    storage=open_storage(self.optuna, storage),
                    direction="maximize" if larger else "minimize",
                    sampler=self.optuna.samplers.RandomSampler(),
                    load_if_exists=True,
                )
                return
            except Exception as error:
                if attempt == ATTEMPTS:
                    raise HierlearnError(
                        f"storage {storage!r} cannot be opened ({type(error).__name__}: {error}); "
                        f"name a database such as sqlite:///tune.db, or a file"
                    ) from error
                time.sleep(attempt * 0.2)  # another process may be making its tables

    def values(self) -> dict[str, float | None]:
        """Return the values of the trials that have ended; None where there is no finite one."""
        return {
            point_of(one): one.value if one.state == self.states.COMPLETE else None
            for one in reversed(self.study.get_trials(deepcopy=False))
            if one.user_attrs.get(ENDED)
        }

    def take(self) -> tuple[str, Any] | None:
        """Take a trial that nobody works on; None where there is none."""
        self.fail_silent()
        found = self.study.get_trials(deepcopy=False)
        taken = {point_of(one) for one in found if self.is_taken(one)}
        free = [key for key in self.keys if key not in taken]
        if not free:
            return None
        self.study.enqueue_trial({POINT: free[0]})
        trial = self.study.ask()  # this one, or the one of another process, which takes ours
        key = str(trial.suggest_categorical(POINT, self.keys))
        trial.set_user_attr(BEAT, time.time())
        for one in self.study.get_trials(deepcopy=False):
            first = one.user_attrs.get(ENDED) or one.number < trial.number
            if first and point_of(one) == key and self.is_taken(one):
                self.study.tell(trial, state=self.states.PRUNED)  # it was taken at the same time
                return None
        return key, trial

    def is_taken(self, one: Any) -> bool:
        """Whether a trial has a value, or somebody works on it."""
        return bool(one.user_attrs.get(ENDED)) or one.state == self.states.RUNNING

    def fail_silent(self) -> None:
        """Mark trials of processes that are silent as failed, so that others take them."""
        for one in self.study.get_trials(deepcopy=False, states=(self.states.RUNNING,)):
            begun = 0.0 if one.datetime_start is None else one.datetime_start.timestamp()
            if time.time() - one.user_attrs.get(BEAT, begun) > SILENT_SECONDS:
                with suppress(ValueError, self.optuna.exceptions.UpdateFinishedTrialError):
                    self.study.tell(one.number, state=self.states.FAIL)

    def end(self, trial: Any, value: float | None) -> None:
        """Store the value of a trial, unless it was taken for dead in the meantime."""
        with suppress(ValueError, self.optuna.exceptions.UpdateFinishedTrialError):
            trial.set_user_attr(ENDED, True)
            if value is None:
                self.study.tell(trial, state=self.states.PRUNED)
            else:
                self.study.tell(trial, value)


def point_of(trial: Any) -> str:
    """Return the key of a trial's point, also where it was enqueued only."""
    fixed = trial.system_attrs.get("fixed_params", {})
    return str(trial.params.get(POINT, fixed.get(POINT, "")))


@contextmanager
def beating(trial: Any) -> Iterator[None]:
    """Say while a block runs that somebody works on a trial."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            with suppress(Exception):  # the storage may be busy
                trial.set_user_attr(BEAT, time.time())

    thread = threading.Thread(target=beat, daemon=True, name="trial-heartbeat")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def open_storage(optuna: Any, storage: str) -> Any:
    """Return a storage of Optuna: a database by its URL, else a journal file."""
    if "://" in storage:
        waits = {"connect_args": {"timeout": LOCK_SECONDS}} if storage.startswith("sqlite") else {}
        return optuna.storages.RDBStorage(storage, engine_kwargs=waits)
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return JournalStorage(JournalFileBackend(storage))


def import_optuna() -> Any:
    """Return the package, quiet, or raise an error that says how to install it."""
    try:
        import optuna
    except ImportError as error:
        raise HierlearnError(
            "a storage of trials needs optuna; install it with: pip install optuna"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
