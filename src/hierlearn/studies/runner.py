"""The runs of one entry: all its seeds trained at once, stacked, and judged on the test rows."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.decoding.mass import terminal_scores
from hierlearn.hierarchy.labels import Labels
from hierlearn.losses.hcl.loss import CollapseWarning
from hierlearn.metrics.measure import measure
from hierlearn.metrics.ranking import first_ranks
from hierlearn.pipeline.train import Reporting, run
from hierlearn.training.prepare import prepare
from hierlearn.training.probabilities import member_probabilities
from hierlearn.training.processes import Processes, find_device
from hierlearn.training.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.datasets import Dataset
    from hierlearn.studies.candidates import Candidate
    from hierlearn.training.plan import Plan
    from hierlearn.training.prepare import Prepared
    from hierlearn.training.trainer import Trainer


@dataclass(frozen=True)
class Job:
    """What to train and judge.

    Attributes:
        entry: a loss or a recipe.
        plan: how to train it, over how many seeds.
        metrics: what to measure on the test rows.
        seeds: the seeds, for the record.
        device: where.
    """

    entry: Candidate
    plan: Plan
    metrics: tuple[str, ...]
    seeds: tuple[int, ...]
    device: str


@dataclass(frozen=True)
class Outcome:
    """What came of a job.

    Attributes:
        runs: a dictionary a seed, ready for JSON.
        rows: decisions on the test rows by name, (seeds, N) each.
        log: the record of every epoch.
        selected: (epochs, C) in how many per cent of the batches a curriculum, if there is one,
            selected each class, over the seeds.
        collapsed: what the first model said that left classes unseen for an epoch, if any did.
    """

    runs: list[dict[str, Any]]
    rows: dict[str, NDArray[Any]]
    log: list[dict[str, Any]]
    selected: NDArray[np.uint8] | None = None
    collapsed: str | None = None


def do_job(job: Job, dataset: Dataset, on_step: Callable[[int, int], None] | None) -> Outcome:
    """Train and judge an entry.

    Args:
        job: what to do.
        dataset: with a split "test".
        on_step: told the step and all steps of the training.
    """
    begun = time.perf_counter()
    prepared = prepare(dataset, job.plan, find_device(job.device))
    log: list[dict[str, Any]] = []
    trainer, collapsed = fit_noting_collapse(prepared, log, on_step)
    runs, rows = judge(job, prepared, trainer, dataset.split("test"))
    for one in runs:
        one["seconds"] = round((time.perf_counter() - begun) / len(runs), 3)
    selected = None
    if trainer.selections:
        shares = torch.stack(trainer.selections).mul(100).round()
        selected = shares.to(torch.uint8).numpy()
    return Outcome(runs, rows, log, selected, collapsed)


def fit_noting_collapse(
    prepared: Prepared,
    log: list[dict[str, Any]],
    on_step: Callable[[int, int], None] | None = None,
) -> tuple[Trainer, str | None]:
    """Train as ``fit`` does; return the first CollapseWarning, where every seed would give one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CollapseWarning)
        trainer = fit(prepared, log, on_step)
    told = [str(one.message) for one in caught if issubclass(one.category, CollapseWarning)]
    for one in caught:
        if not issubclass(one.category, CollapseWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return trainer, told[0] if told else None


def fit(
    prepared: Prepared,
    log: list[dict[str, Any]],
    on_step: Callable[[int, int], None] | None = None,
) -> Trainer:
    """Train what was prepared, in this process, without files."""
    here = Processes(0, 1, prepared.rows.device)
    reporting = Reporting(bar=False, on_epoch=log.append, on_step=on_step)
    return run(prepared, here, reporting=reporting)


def judge(
    job: Job, prepared: Prepared, trainer: Trainer, test: Dataset
) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Return the runs of an entry, a dictionary a seed, and its decisions on the test rows."""
    space = prepared.label_space
    labels = Labels(test.labels, space.hierarchy)
    inputs: Any = test.inputs
    if prepared.preprocessor is not None:  # sparse rows go as they are
        inputs = prepared.preprocessor.transform(inputs)
    ready = Rows(inputs, labels, prepared.rows.device)
    targets = ready.targets(torch.arange(len(ready)))
    runs: list[dict[str, Any]] = []
    rows: dict[str, list[NDArray[Any]]] = {}
    for member, p in enumerate(member_probabilities(prepared.network, ready, prepared.read)):
        for name, values in decisions(p, targets, prepared).items():
            rows.setdefault(name, []).append(values)
        runs.append(
            {
                "entry": job.entry.key,
                "seed": job.seeds[member],
                "test": measure(p, targets, space, job.metrics),
                "valid": trainer.stopping.value[member],
                "best_epoch": trainer.stopping.epoch[member],
                "still_improving": not trainer.stopped[member]
                and trainer.stopping.improved_last[member],
                "settings": dict(job.plan.settings),
                "loss_options": dict(job.plan.loss_options),
            }
        )
    return runs, {name: np.stack(values) for name, values in rows.items()}


def decisions(p: Tensor, targets: Tensor, prepared: Prepared) -> dict[str, NDArray[Any]]:
    """Return what one model decides on each row, (N,) each.

    argmax       the most probable class of all
    terminal     the best terminal class, and its probability
    rank         of the first positive class among all
    """
    ends = prepared.label_space.terminal_ids(p.device)
    scores = terminal_scores(p, prepared.label_space)
    terminal = ends[scores[:, ends].argmax(dim=1)]
    found = {
        "argmax": p.argmax(dim=1),
        "terminal": terminal,
        "rank": first_ranks(p, targets),
    }
    numbers = {name: value.cpu().numpy().astype(np.int32) for name, value in found.items()}
    sure = p.gather(1, terminal[:, None])[:, 0].cpu().numpy().astype(np.float32)
    return {**numbers, "probability": sure}
