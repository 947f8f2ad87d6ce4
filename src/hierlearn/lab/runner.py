"""Runner: one candidate trained over all seeds, and evaluated on the test rows.

The seeds of a loss or a recipe train at once, stacked; whatever trains whole pipelines trains them
one after the other. Below: the splits that a study needs.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hierlearn.decoding import make_decoder
from hierlearn.errors import HierlearnError, quoted
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.protocol import EARLY
from hierlearn.losses import CollapseWarning
from hierlearn.memory.store import Memory
from hierlearn.metrics import find_metric
from hierlearn.metrics.answers import Answers
from hierlearn.metrics.measure import check_supported, figures
from hierlearn.networks.ensemble import members_of
from hierlearn.pipeline.evaluate import predictions
from hierlearn.pipeline.run import Reporting, run
from hierlearn.pipeline.train import train
from hierlearn.reports.decisions import decide
from hierlearn.training.inference import member_probabilities
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import Processes, find_device
from hierlearn.training.rows import Rows
from hierlearn.training.seeding import generator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from hierlearn.datasets import Dataset
    from hierlearn.lab.candidates import Candidate
    from hierlearn.training.prepare import Prepared
    from hierlearn.training.settings import Plan
    from hierlearn.training.solvers import Fitted


ALWAYS = ("exact", "severity")  # stored of each test row


@dataclass(frozen=True)
class Task:
    """What to train and evaluate.

    Attributes:
        candidate: a loss or a recipe.
        plan: how to train it, over how many seeds.
        metrics: the metrics of the table, which must be defined for the test rows.
        seeds: the seeds, for the record.
        device: where.
    """

    candidate: Candidate
    plan: Plan
    metrics: tuple[str, ...]
    seeds: tuple[int, ...]
    device: str


@dataclass(frozen=True)
class Result:
    """The result of a task.

    Attributes:
        runs: one dictionary per seed, ready for JSON.
        rows: decisions and metrics of the test rows by name, (seeds, N) each.
        log: the record of every epoch.
        selected: (epochs, C) in what percentage of the batches a curriculum, if there is one,
            selected each class, over the seeds.
        collapse: the first CollapseWarning, if there was one.
    """

    runs: list[dict[str, Any]]
    rows: dict[str, NDArray[Any]]
    log: list[dict[str, Any]]
    selected: NDArray[np.uint8] | None = None
    collapse: str | None = None


def run_task(
    dataset: Dataset, task: Task, on_step: Callable[[int, int], None] | None = None
) -> Result:
    """Train and evaluate a candidate.

    Args:
        dataset: with a split "test".
        task: what to do.
        on_step: called with the step and the number of steps.
    """
    if task.candidate.is_pipeline:
        return run_pipelines(dataset, task, on_step)
    clock = Stopwatch()
    device = find_device(task.device)
    prepared = prepare(dataset, task.plan, device)
    if prepared.decision.settings.optimizer == "none" and len(task.seeds) > 1:
        # Nothing is trained, so that all seeds are equal: one network serves them.
        alone = {**task.plan.settings, "ensemble_size": 1}
        prepared = prepare(dataset, replace(task.plan, settings=alone), device)
    check_metrics(task, prepared.label_space)
    log: list[dict[str, Any]] = []
    collapse = None
    with warnings.catch_warnings(record=True) as caught:  # every seed would give a CollapseWarning
        warnings.simplefilter("always", CollapseWarning)
        fitted = fit(prepared, log, on_step)
    for one in caught:
        if not issubclass(one.category, CollapseWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        else:
            collapse = collapse or str(one.message)
    rows = ready_rows(prepared, dataset.split("test"))
    runs, stored = evaluate(task, prepared, fitted, rows)
    members = members_of(prepared.network) or 1
    about = {**clock.seconds(len(runs)), **network_size(prepared.network, members)}
    for run_of_seed in runs:
        run_of_seed.update(about)
    selected = None
    if fitted.selections:
        percentages = torch.stack(fitted.selections).mul(100).round()
        selected = percentages.to(torch.uint8).numpy()
    return Result(runs, stored, log, selected, collapse)


def run_pipelines(
    dataset: Dataset, task: Task, on_step: Callable[[int, int], None] | None = None
) -> Result:
    """Train one pipeline per seed, as ``hierlearn train`` does, and evaluate each.

    The arguments are those of ``run_task``; the log is that of the first seed.
    """
    test, training = dataset.split("test"), without_test_rows(dataset)
    check_metrics(task, LabelSpace.from_labels(Labels(training.labels, dataset.hierarchy)))
    logs: list[list[dict[str, Any]]] = []
    runs, parts = [], []

    def report(number: int, step: int, of: int) -> None:
        """Report a step of one of the trainings as a step of all of them."""
        assert on_step is not None
        on_step(number * of + step, len(task.seeds) * of)

    for number, seed in enumerate(task.seeds):
        clock = Stopwatch()
        settings = {**task.plan.settings, "seed": seed, "device": task.device}
        logs.append([])
        reporting = Reporting(
            bar=False,
            on_epoch=logs[-1].append,
            on_step=on_step and partial(report, number),
        )
        # Networks are compared as they are trained, and so are these.
        plan = replace(task.plan, calibration=False, settings=settings)
        pipeline = train(training, plan, reporting=reporting)
        given = predictions(pipeline, test)
        parts.append(measured_rows(task, given))
        trained = pipeline.config.get("training", {})
        chosen = pipeline.config.get("settings", {})
        value, epoch, improved = (
            (trained.get(name) or [None])[0]
            for name in ("best_value", "best_epoch", "improved_at_the_last_epoch")
        )
        runs.append(
            {
                "candidate": task.candidate.key,
                "seed": seed,
                "test": measure_all(given, task.metrics),
                "valid": value,
                "best_epoch": epoch or 0,
                # What is solved on all rows at once has no epochs to add.
                "still_improving": chosen.get("optimizer") != "linear" and bool(improved),
                "recipe": pipeline.config.get("recipe", {}).get("name"),
                "settings": {
                    name: chosen[name] for name in chosen if name in (*EARLY, *task.plan.settings)
                },
                "loss_options": {},
                **clock.seconds(),
                **network_size(pipeline.network),
            }
        )
    return Result(runs, stacked(parts), logs[0])


class Stopwatch:
    """Measures from when it is made: seconds, and those that the processor worked."""

    def __init__(self) -> None:
        self.begun, self.worked = time.perf_counter(), time.process_time()

    def seconds(self, runs: int = 1) -> dict[str, float]:
        """Return the seconds of each of some runs that were made together, as a run tells them."""
        passed, worked = time.perf_counter() - self.begun, time.process_time() - self.worked
        return {"seconds": round(passed / runs, 3), "cpu_seconds": round(worked / runs, 3)}


def network_size(network: nn.Module, members: int = 1) -> dict[str, int]:
    """Return how many numbers are learned, and how many others are stored, in each member.

    The others are what no gradient trains: remembered rows, trees, statistics.
    """
    learned = sum(one.numel() for one in network.parameters())
    whole = sum(one.numel() for one in network.state_dict().values() if isinstance(one, Tensor))
    memories = (one for one in network.modules() if isinstance(one, Memory))
    remembered = sum(one.embeddings.numel() for one in memories if one.embeddings is not None)
    others = max(whole - learned, 0) + remembered
    return {"parameters": learned // members, "stored": others // members}


def check_metrics(task: Task, space: LabelSpace) -> None:
    """Raise on a metric that is not defined for these classes, before hours of training."""
    for name in task.metrics:
        check_supported(find_metric(name), space)


def fit(
    prepared: Prepared,
    log: list[dict[str, Any]],
    on_step: Callable[[int, int], None] | None = None,
) -> Fitted:
    """Train what was prepared, in this process, without files."""
    here = Processes(0, 1, prepared.rows.device)
    reporting = Reporting(bar=False, on_epoch=log.append, on_step=on_step)
    return run(prepared, here, reporting=reporting)


def ready_rows(prepared: Prepared, test: Dataset) -> Rows:
    """Return the test rows, ready for the network."""
    inputs: Any = test.inputs
    if prepared.preprocessor is not None:  # sparse rows go as they are
        inputs = prepared.preprocessor.transform(inputs)
    policy = prepared.plan.unlabeled_descendants
    labels = Labels(test.labels, prepared.label_space.hierarchy, unlabeled_descendants=policy)
    return Rows(inputs, labels, prepared.rows.device)


def evaluate(
    task: Task, prepared: Prepared, fitted: Fitted, test: Rows
) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Return the runs of a candidate, one dictionary per seed, and what is stored of the rows."""
    space = prepared.label_space
    every = torch.arange(len(test))
    targets, mask = test.targets(every), test.mask(every)
    decoder = make_decoder(space, prepared.decision.decoder, **dict(prepared.plan.decoder_options))
    decision = prepared.decision
    decided = decision.settings.to_dict()
    named = dict.fromkeys((*EARLY, *decision.recipe.settings, *task.plan.settings))
    runs: list[dict[str, Any]] = []
    parts = []
    for member, p in enumerate(member_probabilities(prepared.network, test, prepared.read)):
        given = Answers(p, targets, space, mask, decoder)
        parts.append(measured_rows(task, given))
        runs.append(
            {
                "candidate": task.candidate.key,
                "test": measure_all(given, task.metrics),
                "valid": fitted.stopping.value[member],
                "best_epoch": fitted.stopping.epoch[member],
                "still_improving": decided["optimizer"] != "linear"
                and not fitted.stopping.stopped[member]
                and fitted.stopping.improved_last[member],
                "recipe": None if task.candidate.recipe is None else decision.name,
                "settings": {name: decided[name] for name in named},
                "loss_options": dict(task.plan.loss_options),
            }
        )
    if len(runs) == 1:  # one network for all seeds
        runs, parts = [dict(runs[0]) for _ in task.seeds], parts * len(task.seeds)
    for seed, one in zip(task.seeds, runs, strict=True):
        one["seed"] = seed
    return runs, stacked(parts)


def measured_rows(task: Task, given: Answers) -> dict[str, NDArray[Any]]:
    """Return the decisions and the per-row metrics of one model, (N,) each."""
    metrics = [find_metric(name) for name in dict.fromkeys((*task.metrics, *ALWAYS))]
    found = decide(given.p, given.space)
    if given.single is not None:
        found["answer"] = given.single.cpu().numpy()
    found |= {one.name: given.rows(one) for one in metrics if one.per_row}
    return {
        name: values.astype(np.int32 if values.dtype.kind == "i" else np.float32)
        for name, values in found.items()
    }


def stacked(parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return (seeds, N) arrays by name, of one part per seed."""
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]}


def measure_all(given: Answers, metrics: Sequence[str]) -> dict[str, Any]:
    """Return the metrics of the table and those that are ``shown``, None where undefined.

    A metric of the table that is not defined for these rows raises an error; severity has no value
    where nothing is wrong.
    """
    found = figures(given)
    rest = [name for name in metrics if name not in found]
    return {**found, **figures(given, rest)} if rest else found


# ---------------------------------------- splits


def with_test_rows(dataset: Dataset, fraction: float, seed: int) -> tuple[Dataset, str]:
    """Return the dataset with a split "test", and what was done, for the reader.

    Args:
        dataset: as it was read; its own split "test" stays.
        fraction: of the rows, for a dataset without that split.
        seed: of the draw.
    """
    if len(dataset.splits.get("test", ())):
        return dataset, ""
    others = [name for name in dataset.splits if name not in ("train", "valid", "test")]
    if others:
        raise HierlearnError(
            f"none of the splits {quoted(list(dataset.splits))} is called 'test'; rename "
            f"the one to evaluate on to 'test', and those to train and stop on to 'train' and "
            f"'valid'"
        )
    if not 0 < fraction < 1:
        raise HierlearnError(f"the fraction of test rows must lie in (0, 1), not {fraction}")
    held = dataset.splits.get("valid", np.zeros(0, dtype=np.int64))
    rows = np.setdiff1d(dataset.splits.get("train", np.arange(len(dataset))), held)
    if not len(rows):
        raise HierlearnError("there are no training rows to set test rows aside from")
    count = round(fraction * len(rows))
    if not 0 < count < len(rows):
        raise HierlearnError(f"a fraction of {fraction} of {len(rows)} rows is {count} rows")
    order = torch.randperm(len(rows), generator=generator(seed, "test")).numpy()
    splits = {
        **dataset.splits,
        "test": np.sort(rows[order[:count]]),
        "train": np.sort(rows[order[count:]]),
    }
    return replace(dataset, splits=splits), f"; {count:,} rows set aside for testing"


def check_test_rows(dataset: Dataset) -> None:
    """Raise for a dataset without a split "test", or without a label in it."""
    name, rows = dataset.name or "the dataset", dataset.splits.get("test", ())
    if not len(rows):
        raise HierlearnError(
            f"{name} has no split 'test' to evaluate on; make one with "
            f"hierlearn.lab.runner.with_test_rows"
        )
    if not len(Labels(dataset.split("test").labels, dataset.hierarchy).closed[1]):
        raise HierlearnError(f"none of the {len(rows)} test rows has a label to evaluate on")


def unseen_classes(dataset: Dataset) -> list[str]:
    """Return the classes that occur in the rows of the split "test" and in no other."""
    rows = dataset.splits["test"]
    rest = np.setdiff1d(np.arange(len(dataset)), rows)
    tested, trained = (
        set(Labels([dataset.labels[row] for row in part], dataset.hierarchy).closed[1].tolist())
        for part in (rows, rest)
    )
    return [dataset.hierarchy.names[number] for number in sorted(tested - trained)]


def without_test_rows(dataset: Dataset) -> Dataset:
    """Return the dataset with splits for its other rows alone, so that nothing reads the test rows.

    The rows that no split names are in "train" then.
    """
    splits = with_training_rows(dataset).splits
    return replace(dataset, splits={name: splits[name] for name in splits if name != "test"})


def with_training_rows(dataset: Dataset) -> Dataset:
    """Return the dataset with a split "train": the rows that are in no other."""
    if "train" in dataset.splits:
        return dataset
    held = np.concatenate([dataset.splits[n] for n in ("valid", "test") if n in dataset.splits])
    rest = np.setdiff1d(np.arange(len(dataset)), held)
    return replace(dataset, splits={**dataset.splits, "train": rest})
