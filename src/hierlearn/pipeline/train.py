"""Train: from a dataset and a plan to a pipeline; called by the estimator and the command line."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.tables.stream import RowGroups
from hierlearn.errors import HierlearnError
from hierlearn.networks.build import NetworkSpec
from hierlearn.pipeline.blend import BlendTraining
from hierlearn.pipeline.calibrate import calibrate
from hierlearn.pipeline.evaluate import evaluate_after_training
from hierlearn.pipeline.folder import (
    OURS,
    TRAINING,
    WORK,
    check_free,
    complete_swap,
    held_for_training,
    is_finished,
    read_config,
    remove_folder,
    replaced_model,
    training_folder,
)
from hierlearn.pipeline.pipeline import Pipeline
from hierlearn.pipeline.run import (
    Job,
    Reporting,
    TrainingStart,
    check_identity,
    describe_run,
    run,
    run_identity,
)
from hierlearn.pipeline.seen_rows import note_rows
from hierlearn.training.blending import FEWEST_TO_RACE, is_free_to_race
from hierlearn.training.prepare import PrepareOptions, prepare, summary
from hierlearn.training.processes import processes
from hierlearn.training.settings import Plan, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Dataset
    from hierlearn.training.processes import Processes
    from hierlearn.training.solvers import Fitted


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
        job = training_job(dataset, plan, here, weights, reporting)
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


def training_job(
    dataset: Dataset,
    plan: Plan,
    here: Processes,
    weights: NDArray[np.float64] | None,
    reporting: Reporting,
    options: PrepareOptions | None = None,
) -> SingleTraining | BlendTraining:
    """Return what trains a plan: several recipes that are blended, a race of a few, or one recipe.

    Args:
        dataset: all rows.
        plan: what was asked for.
        here: this process among all of them.
        weights: (N,) how much each row counts.
        reporting: the callbacks.
        options: a module, classes that may occur, or a head of logits: for one recipe alone.
    """
    if plan.effort == "best":
        if options is not None and options.network is not None:
            raise HierlearnError(
                "effort 'best' chooses networks itself; leave out the module, or use effort 'quick'"
            )
        return BlendTraining(dataset, plan, here, weights, reporting)
    given = replace(options or PrepareOptions(), weights=None)
    few = len(dataset) < FEWEST_TO_RACE or isinstance(dataset.inputs, RowGroups)
    if not few and here.world == 1 and given == PrepareOptions() and is_free_to_race(plan):
        race = BlendTraining(dataset, plan, here, weights, reporting)
        if race.held:
            return race
    return SingleTraining(dataset, plan, here, weights, reporting, options)


@dataclass
class SingleTraining(Job):
    """The training of one recipe, with one network or several that differ by seed.

    Attributes:
        options: what ``prepare`` takes beside the dataset and the plan.
        fitted: how it ended.
    """

    options: PrepareOptions | None = None
    fitted: Fitted | None = None

    def __post_init__(self) -> None:
        options = self.options or PrepareOptions(weights=self.weights)
        self.prepared = prepare(self.dataset, self.plan, self.here.device, options)
        self.rows, self.held_out = self.prepared.rows.numbers, self.prepared.held_out
        spec = self.prepared.network_spec
        self.foreign = [] if spec is None else spec.foreign

    def identity(self) -> dict[str, Any]:
        """Return what must be equal where this training is resumed."""
        return run_identity(self.prepared)

    def run(self, out: Path | None = None, *, resume: bool = False) -> Pipeline:
        """Train, and return the pipeline."""
        one, reporting = self.prepared, self.reporting
        if self.here.writes:
            reporting.message(summary(one))
            if reporting.on_prepared is not None:
                start = TrainingStart(one.label_space, one.decision.settings, summary(one))
                reporting.on_prepared(start)
        self.fitted = run(one, self.here, out, resume=resume, reporting=reporting)
        pipeline = Pipeline.from_prepared(one)
        pipeline.config |= describe_run(one, self.dataset, self.fitted)
        calibrate(pipeline, one, self.dataset, self.here, self.weights, reporting)
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
