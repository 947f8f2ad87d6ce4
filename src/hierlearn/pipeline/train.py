"""Train: from a dataset and a plan to a pipeline; called by the estimator and the command line."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.errors import plural
from hierlearn.files.schema import Extra, check
from hierlearn.files.tensors import CheckpointError
from hierlearn.networks.build import NetworkSpec
from hierlearn.pipeline.best import BlendTraining
from hierlearn.pipeline.calibrate import calibrate
from hierlearn.pipeline.config_file import check_plain, read_config
from hierlearn.pipeline.evaluate import evaluate_after_training
from hierlearn.pipeline.folder import (
    OURS,
    TRAINING,
    WORK,
    check_free,
    complete_swap,
    held_for_training,
    is_finished,
    remove_folder,
    replaced_model,
    training_folder,
)
from hierlearn.pipeline.job import Job
from hierlearn.pipeline.pipeline import Pipeline, versions
from hierlearn.pipeline.reporting import Beginning, Reporting
from hierlearn.pipeline.seen_rows import note_rows
from hierlearn.training.checkpoint import Checkpoints
from hierlearn.training.prepare import Extras, Prepared, prepare, summary
from hierlearn.training.processes import Processes, processes
from hierlearn.training.progress import EpochLog, progress_bar
from hierlearn.training.settings import Plan, Settings
from hierlearn.training.solvers import SOLVERS, Fitted, Run
from hierlearn.training.solvers.parallel import check_sharding
from hierlearn.training.stream import ParquetRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Dataset


def train(
    dataset: Dataset,
    plan: Plan | None = None,
    out: Path | str | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    weights: NDArray[np.float64] | None = None,
    metadata: Mapping[str, Any] | None = None,
    reporting: Reporting | None = None,
) -> Pipeline:
    """Train a pipeline on the split "train" of a dataset, or on all its rows.

    Args:
        dataset: the rows; its splits "valid" and "test" are kept apart.
        plan: what to train and how.
        out: the folder of the model, its log and its checkpoints; None writes nothing.
        resume: continue from the newest checkpoint in ``out``, if there is one.
        force: replace a model that is in ``out``.
        weights: (N,) how much each row of the dataset counts.
        metadata: more entries for the configuration of the model, as plain values.
        reporting: the callbacks.
    """
    plan, reporting = plan or Plan(), reporting or Reporting()
    out = None if out is None else Path(out)
    resume = resume or was_restarted(out)
    with processes(Settings.from_dict(plan.settings).device) as here, ExitStack() as stack:
        if out is not None and not resume and here.writes:
            check_free(out, force)
        if out is not None and resume and here.writes:
            complete_swap(out)
        here.wait()
        job: Single | BlendTraining
        if plan.effort == "best":
            job = BlendTraining(dataset, plan, here, weights, reporting)
        else:
            job = Single(dataset, plan, here, weights, reporting)
        if out is not None and resume and is_finished(out):
            config = read_config(out)
            check_identity(out, config.get("training", {}).get("run"), job.identity())
            names = NetworkSpec.from_dict(config["network"]).foreign
            trust = set(names) <= set(job.foreign)  # built already
            finished = Pipeline.load(out, device=here.device, trust=trust)
            if here.writes:
                remove_folder(out / WORK)
            reporting.message(f"{out} is finished already")
            return finished
        if here.writes and out is not None:  # a model that is there stays until the new one is
            stack.enter_context(held_for_training(out, force=force, resume=resume))  # complete
        here.wait()
        pipeline = job.run(None if out is None else training_folder(out), resume=resume)
        pipeline.config |= metadata or {}
        if here.writes:
            note_rows(pipeline, dataset, job.rows, job.held_out)
        held = {"valid": job.held_out, "test": dataset.splits.get("test", ())}
        for name, picked in held.items():
            if here.writes and len(picked):
                figures = evaluate_after_training(pipeline, dataset.take(picked), name)
                pipeline.config["metrics"] |= {} if figures is None else {name: figures}
        if out is not None and here.writes:
            pipeline.config["training"]["run"] = job.identity()
            save_into(pipeline, out, of_training=True)
            remove_folder(out / WORK)
        here.wait()
        return pipeline


@dataclass
class Single(Job):
    """The training of one recipe, with one network or several that differ by seed."""

    def __post_init__(self) -> None:
        extras = Extras(weights=self.weights)
        self.prepared = prepare(self.dataset, self.plan, self.here.device, extras)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers of the training rows."""
        return self.prepared.trained

    @property
    def held_out(self) -> NDArray[np.int64]:
        """The numbers of the validation rows."""
        return self.prepared.held_out

    @property
    def foreign(self) -> list[str]:
        """The factories outside of hierlearn that it uses."""
        spec = self.prepared.network_spec
        return [] if spec is None else spec.foreign

    def identity(self) -> dict[str, Any]:
        """Return what must be equal where this training is resumed."""
        return run_identity(self.prepared)

    def run(self, out: Path | None, *, resume: bool) -> Pipeline:
        """Train, and return the pipeline."""
        if self.here.writes:
            self.reporting.message(summary(self.prepared))
            if self.reporting.on_prepared is not None:
                one = self.prepared
                beginning = Beginning(one.label_space, one.decision.settings, summary(one))
                self.reporting.on_prepared(beginning)
        fitted = run(self.prepared, self.here, out, resume=resume, reporting=self.reporting)
        pipeline = Pipeline.from_prepared(self.prepared)
        pipeline.config |= describe_run(self.prepared, self.dataset, fitted)
        calibrate(pipeline, self.prepared, self.dataset, self.here, self.weights, self.reporting)
        return pipeline


def was_restarted(out: Path | None) -> bool:
    """Whether torchrun has restarted this training, and left files to resume from."""
    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    names = (*OURS, TRAINING, "run.yaml")
    return again and out is not None and any((out / name).exists() for name in names)


def save_into(pipeline: Pipeline, out: Path, *, of_training: bool = False) -> None:
    """Save a pipeline into the folder of its own training, beside log and checkpoints.

    Args:
        pipeline: a trained pipeline.
        out: the folder; a model that is there is replaced.
        of_training: whether a training that ends now wrote log and checkpoints.
    """
    pipeline.check_savable()
    with replaced_model(out, of_training=of_training) as hidden:
        pipeline.write(hidden)


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
    if settings.parallel == "fsdp":
        check_sharding(prepared.network, settings)
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
        log = EpochLog(path, epochs=begun.get("epoch", 0), tensorboard=reporting.tensorboard)
    shown = reporting.bar and here.writes
    with progress_bar("training", steps, begun.get("step", 0), show=shown) as progress:

        def on_epoch(record: dict[str, Any]) -> None:
            progress.epoch(record)
            if reporting.on_epoch is not None:
                reporting.on_epoch(record)
            if log is not None:
                log(record)

        def on_step(step: int) -> None:
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
        "parallel",
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
    before, after = flat(stored["plan"]), flat(now["plan"])
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            raise CheckpointError(
                f"{path} was trained with {name}={before.get(name)}, now {name}="
                f"{after.get(name)}; use the same, or train again in another folder"
            )


def flat(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan with its settings among its own values."""
    return {**{k: v for k, v in plan.items() if k != "settings"}, **plan["settings"]}


def describe_inputs(prepared: Prepared, dataset: Dataset) -> str:
    """Return what the model reads, for its card."""
    if dataset.is_text:
        return "text"
    columns = "" if prepared.preprocessor is None else prepared.preprocessor.summary()
    if dataset.kind == "images":
        return columns or "images"
    return columns or plural(prepared.rows.inputs.shape[1], "number")


def describe_run(prepared: Prepared, dataset: Dataset, fitted: Fitted | None) -> dict[str, Any]:
    """Return the configuration of a model about its training; ``fitted`` is None before it."""
    decision = prepared.decision
    recipe, patience = decision.recipe, decision.settings.patience
    return {
        "name": dataset.name or "model",
        "license": None,
        "data": {
            "name": dataset.name,
            "source": dataset.source,
            "training_rows": len(prepared.rows),
            "validation_rows": len(prepared.valid or ()),
            "inputs": describe_inputs(prepared, dataset),
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
