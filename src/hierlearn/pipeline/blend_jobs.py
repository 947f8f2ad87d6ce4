"""Blend jobs: the trainings of a blend at the same time, on workers that were lent.

A job is one recipe on one fold, or one part on all rows: a pure function of the rows and a plan, as
the training in this process is. Its tensors are stored as they come, so that the blend finds them
there, and an interrupted run resumes with what is missing.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.torch import load, save

from hierlearn.pipeline.parts import predict_answers
from hierlearn.pipeline.reporting import Reporting
from hierlearn.pipeline.workers import Call
from hierlearn.training.blending import FOLD_SEEDS, Ingredient, answers_of
from hierlearn.training.clock import Clock, OutOfTime
from hierlearn.training.prepare import Extras, Prepared, prepare
from hierlearn.training.processes import Processes, find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.pipeline.best import BlendTraining
    from hierlearn.pipeline.workers import Workers
    from hierlearn.training.settings import Plan

    Step = Callable[[int, int], None]


@dataclass(frozen=True)
class BlendRows:
    """What all trainings of a blend share.

    Attributes:
        dataset: all rows.
        rows: the numbers of the training rows.
        terminals: the terminal classes of all training rows, by name.
        weights: (N,) how much each row of the dataset counts.
        encoder: a fitted encoder that all parts share.
    """

    dataset: Dataset
    rows: NDArray[np.int64]
    terminals: list[str]
    weights: NDArray[np.float64] | None = None
    encoder: Any = None

    def prepare(self, plan: Plan, rows: NDArray[np.int64], device: torch.device) -> Prepared:
        """Prepare a training on some of the rows, for the classes of all of them."""
        dataset = replace(self.dataset, splits={"train": self.rows[rows]})
        extras = Extras(weights=self.weights, terminals=self.terminals, encoder=self.encoder)
        return prepare(dataset, plan, device, extras)


@dataclass(frozen=True)
class Limit:
    """The time that a job may take.

    Attributes:
        seconds: from when it begins.
        deadline: the time of day, in seconds, when it must have ended.
    """

    seconds: float = float("inf")
    deadline: float = float("inf")

    @classmethod
    def of(cls, left: float, share: float = 1.0) -> Limit:
        """Return the limit of a job that may take a share of the seconds that are left."""
        return cls(left * share, time.time() + left)

    def watch(self) -> Step:
        """Return the callback that stops a training which begins now and takes too long."""
        return Clock(None).watch(min(self.seconds, self.deadline - time.time()))


def train_fold(
    shared: BlendRows,
    plan: Plan,
    held: NDArray[np.int64],
    limit: Limit,
    *,
    on_step: Step | None = None,
) -> tuple[bytes, float] | None:
    """Return the predictions of rows left out of a training, and its seconds.

    Args:
        shared: the rows.
        plan: how to train.
        held: the rows to leave out, among the training rows.
        limit: None is returned where the training takes longer.
        on_step: called with the step and the number of steps.
    """
    begun = time.monotonic()
    left = np.delete(np.arange(len(shared.rows)), held)
    prepared = trained(shared, plan, left, limit, on_step)
    if prepared is None:
        return None
    rows = shared.dataset.take(shared.rows[held])
    found = predict_answers(prepared, rows, answers_of(prepared))
    return save(found), time.monotonic() - begun


def train_part(
    shared: BlendRows, plan: Plan, limit: Limit, *, on_step: Step | None = None
) -> tuple[bytes, float] | None:
    """Return the weights of a network trained on all rows; arguments as of ``train_fold``."""
    begun = time.monotonic()
    prepared = trained(shared, plan, np.arange(len(shared.rows)), limit, on_step)
    if prepared is None:
        return None
    state = {name: value.contiguous() for name, value in prepared.network.state_dict().items()}
    return save(state), time.monotonic() - begun


def trained(
    shared: BlendRows,
    plan: Plan,
    rows: NDArray[np.int64],
    limit: Limit,
    on_step: Step | None,
) -> Prepared | None:
    """Train on some of the rows; return None where that takes too long."""
    from hierlearn.pipeline.train import run

    device = find_device(plan.settings.get("device", "auto"))
    prepared = shared.prepare(plan, rows, device)
    watch = limit.watch()

    def step(number: int, of: int) -> None:
        watch(number, of)
        if on_step is not None:
            on_step(number, of)

    try:
        run(prepared, Processes(0, 1, device), reporting=Reporting(bar=False, on_step=step))
    except OutOfTime:
        return None
    return prepared


# ---------------------------------------- on the side of the blend


def folds_at_once(blend: BlendTraining, found: dict[str, Ingredient], workers: Workers) -> None:
    """Train every recipe on every fold that is missing, and store the predictions."""
    at_once, results = workers.workers, blend.results
    assert results is not None  # there are workers
    keys: list[tuple[str, int]] = []

    def jobs() -> Iterator[Call]:
        for name, ingredient in found.items():
            plan = ingredient.plan(blend.plan, FOLD_SEEDS, table=blend.is_table)
            for number, held in enumerate(blend.held):
                if name in blend.too_long or f"{name}-{number}" in results:
                    continue
                share = min(1.0, at_once / (len(blend.held) - number))
                limit = Limit.of(blend.time_for_folds, share)
                keys.append((name, number))
                yield Call(train_fold, blend.shared, (plan, held, limit))

    for key, tensors, seconds in outcomes(workers, jobs(), keys):
        name, number = key
        if tensors is None:
            blend.too_long.add(name)
        else:
            results.put(f"{name}-{number}", tensors, "fold")
            blend.seconds[name] = blend.seconds.get(name, 0.0) + seconds


def parts_at_once(blend: BlendTraining, plans: dict[str, Plan], workers: Workers) -> None:
    """Train parts on all rows, those that are missing, and store their weights.

    Args:
        blend: the training.
        plans: of the parts by name, the weightiest first, which is trained however long it takes.
        workers: where.
    """
    keys: list[str] = []
    results = blend.results
    assert results is not None  # there are workers

    def jobs() -> Iterator[Call]:
        for number, (name, plan) in enumerate(plans.items()):
            if blend.part_key(name, plan) not in results:
                keys.append(name)
                limit = Limit.of(blend.clock.left) if number else Limit()
                yield Call(train_part, blend.shared, (plan, limit))

    for name, tensors, _ in outcomes(workers, jobs(), keys):
        if tensors is None:
            blend.too_long.add(name)
        else:
            results.put(blend.part_key(name, plans[name]), tensors, "part")


def outcomes(
    workers: Workers, jobs: Iterator[Call], keys: list[Any]
) -> Iterator[tuple[Any, dict[str, Tensor] | None, float]]:
    """Yield the key, the tensors and the seconds of every job as it ends; None where too long."""
    with closing(workers.run(jobs)) as ends:
        for end in ends:
            result = end.result()
            if result is None:
                yield keys[end.number], None, 0.0
            else:
                yield keys[end.number], load(result[0]), result[1]
