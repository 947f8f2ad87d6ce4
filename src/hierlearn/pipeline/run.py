"""Run: one training of one prepared network, with its log, its checkpoints and its callbacks.

Estimator, studies, blends and the command line train by ``run``.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hierlearn.errors import arg, plural
from hierlearn.files.structured import Extra, check
from hierlearn.files.tensors import CheckpointError
from hierlearn.pipeline.folder import check_plain
from hierlearn.pipeline.pipeline import versions
from hierlearn.training.checkpoint import Checkpoints
from hierlearn.training.progress import EpochLog, progress_bar
from hierlearn.training.solvers import SOLVERS, Fitted, Run
from hierlearn.training.stream import ParquetRows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.hierarchy import LabelSpace
    from hierlearn.training.prepare import Prepared
    from hierlearn.training.processes import Processes
    from hierlearn.training.settings import Plan, Settings
    from hierlearn.training.solvers.solver import Timeline


@dataclass(frozen=True)
class TrainingStart:
    """What is known of a training before its first step.

    Attributes:
        label_space: what will be predicted.
        settings: how it trains.
        summary: one sentence on it.
    """

    label_space: LabelSpace
    settings: Settings
    summary: str


@dataclass(frozen=True)
class Reporting:
    """The callbacks of a training.

    Attributes:
        on_message: called with one sentence on what was chosen.
        on_prepared: called in the process that writes with what will be trained, before the first
            step.
        on_epoch: called with the record of every epoch.
        on_step: called with the number of the step, from 1, and the number of steps.
        timeline: told which part of an epoch begins.
        bar: show a progress bar on a terminal.
    """

    on_message: Callable[[str], None] | None = None
    on_prepared: Callable[[TrainingStart], None] | None = None
    on_epoch: Callable[[dict[str, Any]], None] | None = None
    on_step: Callable[[int, int], None] | None = None
    timeline: Timeline | None = None
    bar: bool = True

    def message(self, sentence: str) -> None:
        """Pass a sentence to ``on_message``."""
        if self.on_message is not None:
            self.on_message(sentence)


@dataclass
class Job:
    """A training that can be run.

    Attributes:
        dataset: all rows.
        plan: what was asked for.
        here: this process among all of them.
        weights: (N,) how much each row of the dataset counts.
        reporting: the callbacks.
    """

    dataset: Dataset
    plan: Plan
    here: Processes
    weights: NDArray[np.float64] | None
    reporting: Reporting


def run(
    prepared: Prepared,
    here: Processes,
    out: Path | None = None,
    *,
    resume: bool = False,
    reporting: Reporting | None = None,
) -> Fitted:
    """Train from the start or from a checkpoint; estimator, studies and command line call this.

    Args:
        prepared: what ``prepare`` returned.
        here: this process among all of them.
        out: the folder of the log and the checkpoints; None writes nothing.
        resume: continue from the newest checkpoint in ``out``, if there is one.
        reporting: the callbacks.
    """
    settings, reporting = prepared.decision.settings, reporting or Reporting(bar=False)
    solver = SOLVERS[settings.optimizer]
    steps, task = solver.steps(prepared), Run(here)
    if out is not None:
        identity = run_identity(prepared)
        checkpoints = Checkpoints(out / "checkpoints", settings.keep_checkpoints)
        task.checkpoint = checkpoints.latest() if resume else None
        if task.checkpoint is not None:
            path, metadata = task.checkpoint.path, task.checkpoint.metadata
            check_identity(path, metadata.get("run"), identity)
            task.checkpoint.check(settings.ensemble_size, steps)
            if here.writes:
                checkpoints.prune()  # a process that was killed may have left one too many
        task.save = lambda step, tensors, metadata: checkpoints.save(
            step, tensors, {**metadata, "run": identity, "versions": versions()}
        )
    begun = {} if task.checkpoint is None else task.checkpoint.metadata
    log = None
    if out is not None and here.writes:
        path = out / "log.jsonl"
        log = EpochLog(path, epochs=begun.get("epoch", 0))
    shown = reporting.bar and here.writes
    bar = progress_bar("training", steps, begun.get("step", 0)) if shown else nullcontext()
    with bar as progress:

        def on_epoch(record: dict[str, Any]) -> None:
            if progress is not None:
                progress.epoch(record)
            if reporting.on_epoch is not None:
                reporting.on_epoch(record)
            if log is not None:
                log(record)

        def on_step(step: int) -> None:
            if progress is not None:
                progress.step(step)
            if reporting.on_step is not None:
                reporting.on_step(step, steps)

        task.on_epoch, task.on_step = on_epoch, on_step
        task.timeline = reporting.timeline or task.timeline
        return solver.fit(prepared, task)


def run_identity(prepared: Prepared) -> dict[str, Any]:
    """Return what must be equal in a checkpoint and the training that resumes from it."""
    plan = {**prepared.plan.to_dict(), "settings": prepared.decision.settings.to_dict()}
    if isinstance(prepared.rows, ParquetRows):
        plan["stream_window"] = prepared.rows.source.window
    for free in (
        "device",
        "checkpoint_every",
        "keep_checkpoints",
        "cuda_graphs",
    ):  # may change when it resumes
        plan["settings"].pop(free)
    check_plain(plan)
    sums = hashlib.sha256(prepared.rows.digest().encode())
    if prepared.rows.weights is not None:
        sums.update(prepared.rows.weights.cpu().numpy().tobytes())
    if prepared.valid is not None:
        sums.update(prepared.valid.digest().encode())
    return {
        "fingerprint": prepared.label_space.hierarchy.fingerprint,
        "data": sums.hexdigest(),
        "plan": json.loads(json.dumps(plan)),  # as it is read back
    }


@dataclass
class Identity(Extra):
    """What must be equal, as JSON."""

    fingerprint: str
    data: str
    plan: IdentityPlan


@dataclass
class IdentityPlan(Extra):
    """A plan with its settings."""

    settings: dict[str, Any]


def check_identity(path: Path, stored: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
    """Raise on a checkpoint of another training, naming what differs."""
    if stored is None:
        raise CheckpointError(f"{path} does not name its training; train again in another folder")
    check(path, stored, Identity, CheckpointError)
    if stored["fingerprint"] != now["fingerprint"]:
        raise CheckpointError(
            f"{path} is of another hierarchy: fingerprint {stored['fingerprint'][:12]}, this "
            f"one has {now['fingerprint'][:12]}"
        )
    if stored["data"] != now["data"]:
        raise CheckpointError(f"{path} was trained on other rows; train again in another folder")
    before, after = (  # the settings among the plan's own values
        {**one["plan"], **one["plan"]["settings"], "settings": None} for one in (stored, now)
    )
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            raise CheckpointError(
                f"{path} was trained with {arg(name, before.get(name))}, now "
                f"{arg(name, after.get(name))}; use the same, or train again in another folder"
            )


def describe_run(prepared: Prepared, dataset: Dataset, fitted: Fitted | None) -> dict[str, Any]:
    """Return the configuration of a model about its training; ``fitted`` is None before it."""
    decision = prepared.decision
    recipe, patience = decision.recipe, decision.settings.patience
    columns = "" if prepared.preprocessor is None else prepared.preprocessor.summary()
    if dataset.is_text:
        columns = "text"
    elif not columns:
        numbers = dataset.kind != "images"
        columns = plural(prepared.rows.inputs.shape[1], "number") if numbers else "images"
    return {
        "name": dataset.name or "model",
        "license": None,
        "data": {
            "name": dataset.name,
            "source": dataset.source,
            "training_rows": len(prepared.rows),
            "validation_rows": len(prepared.valid or ()),
            "inputs": columns,
        },
        "feature_names": list(dataset.feature_names),
        "recipe": {
            "name": decision.name,
            "because": decision.why,
            "loss": recipe.loss,
            "loss_options": dict(recipe.loss_options),
            "joint": dict(recipe.joint),
        },
        "plan": prepared.plan.to_dict(),
        "settings": decision.settings.to_dict(),
        "training": {}
        if fitted is None
        else {
            "steps": fitted.steps,
            "best_epoch": fitted.stopping.epoch if patience else None,
            "best_value": fitted.stopping.value if patience else None,
            "improved_at_the_last_epoch": fitted.stopping.improved_last if prepared.valid else None,
        },
        "versions": versions(),
        "metrics": {},
    }
