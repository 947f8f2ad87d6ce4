"""Train: from a dataset and a plan to a model; what the estimator and the command line call."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.losses import HCLLoss
from hierlearn.networks.network import Network
from hierlearn.pipeline.evaluate import evaluate
from hierlearn.pipeline.pipeline import OURS, Pipeline, check_free, check_plain, versions
from hierlearn.pipeline.prepare import Prepared, prepare, split_rows, summary
from hierlearn.training.checkpoint import CheckpointError, Checkpoints
from hierlearn.training.log import EpochLog
from hierlearn.training.plan import Plan
from hierlearn.training.processes import Processes, processes
from hierlearn.training.progress import progress_bar
from hierlearn.training.settings import Settings
from hierlearn.training.stream import ParquetRows
from hierlearn.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from hierlearn.datasets.dataset import Dataset


def train(
    dataset: Dataset,
    plan: Plan | None = None,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
    weights: NDArray[np.float64] | None = None,
    tensorboard: bool = False,
    show: bool = True,
    on_message: Callable[[str], None] | None = None,
    on_prepared: Callable[[Prepared], None] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Train a model on the split "train" of a dataset, or on all its rows.

    Args:
        dataset: the rows; its splits "valid" and "test" are kept apart.
        plan: what to train and how.
        out: the folder of the model, its log and its checkpoints; None writes nothing.
        resume: go on from the newest checkpoint in ``out``, if there is one.
        force: replace a model that is in ``out``.
        weights: (N,) how much each row of the dataset counts.
        tensorboard: also log for TensorBoard.
        show: show a progress bar on a terminal.
        on_message: called with a sentence that says what was chosen.
        on_prepared: called in the process that writes with what was prepared, before the first
            step; ``out`` is free by then.
        metadata: what else the configuration of the model should tell, as plain values.
    """
    plan = plan or Plan()
    out = None if out is None else Path(out)
    on_message = on_message or (lambda _: None)
    resume = resume or was_restarted(out)
    with processes(Settings.from_dict(plan.settings).device) as here:
        if out is not None and not resume and here.writes:
            check_free(out, force, clear=False)
        here.wait()
        prepared = prepare(dataset, plan, here.device, weights)
        if out is not None and resume and (out / "config.json").is_file():
            model = Pipeline.load(out, device=here.device)
            stored = model.config.get("training", {}).get("run")
            check_identity(out, stored, run_identity(prepared))
            on_message(f"{out} is finished already")
            return model
        if here.writes:
            if out is not None and not resume:
                check_free(out, force)  # the old model goes once the new one is sure to begin
            on_message(summary(prepared))
            if on_prepared is not None:
                on_prepared(prepared)
        trainer = run(prepared, here, out, resume=resume, tensorboard=tensorboard, show=show)
        model = prepared.model
        model.config |= {**describe_run(prepared, dataset, trainer), **(metadata or {})}
        held = {"valid": split_rows(dataset, plan)[1], "test": dataset.splits.get("test", ())}
        for name, picked in held.items():
            if here.writes and len(picked):
                model.config["metrics"][name] = evaluate(model, dataset.take(picked))
        if out is not None and here.writes:
            model.config["training"]["run"] = run_identity(prepared)
            save_into(model, out)
        here.wait()
        return model


def was_restarted(out: Path | None) -> bool:
    """Whether torchrun has started this training again; it goes on where it left files."""
    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    return again and out is not None and any((out / name).exists() for name in (*OURS, "run.yaml"))


def save_into(model: Pipeline, out: Path) -> None:
    """Save a model into the folder of its own training, beside log and checkpoints."""
    import tempfile

    out.mkdir(parents=True, exist_ok=True)
    for left in out.glob(".model-*"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    for left in out.glob(".*.part"):
        left.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".model-") as name:
        folder = model.save(Path(name) / "model")
        # The configuration comes last: a folder that has one is complete.
        for file in sorted(folder.iterdir(), key=lambda path: path.name == "config.json"):
            file.replace(out / file.name)


def run(
    prepared: Prepared,
    here: Processes,
    out: Path | None,
    *,
    resume: bool = False,
    tensorboard: bool = False,
    show: bool = True,
    keep_record: Callable[[dict[str, Any]], None] | None = None,
) -> Trainer:
    """Train what was prepared, from the start or from a checkpoint."""
    settings = prepared.decision.settings
    trainer = Trainer(
        prepared.model.network,
        prepared.losses,
        prepared.rows,
        settings,
        link=prepared.model.link,
        valid=prepared.valid,
        terminals=prepared.model.terminals,
        processes=here,
        alike=True,
    )
    if out is not None:
        identity = run_identity(prepared)
        checkpoints = Checkpoints(out / "checkpoints", settings.keep_checkpoints)
        latest = checkpoints.latest() if resume else None
        if latest is not None:
            check_identity(latest.path, latest.facts.get("run"), identity)
            trainer.go_on(latest)
        trainer.save = lambda step, tensors, facts: checkpoints.save(
            step, tensors, {**facts, "run": identity, "versions": versions()}
        )
    log = None
    if out is not None and here.writes:
        log = EpochLog(out / "log.jsonl", epochs=trainer.epoch, tensorboard=tensorboard)
    bar = progress_bar("training", trainer.steps, trainer.step, show=show and here.writes)
    keep_rng = nullcontext() if isinstance(prepared.model.network, Network) else rng_kept()
    with bar as progress, keep_rng:

        def on_epoch(record: dict[str, Any]) -> None:
            progress.epoch(record)
            if keep_record is not None:
                keep_record(record)
            if log is not None:
                log(record)

        trainer.on_epoch, trainer.on_step = on_epoch, progress.step
        trainer.train()
    return trainer


def rng_kept() -> Any:
    """Leave torch's own generators as they were."""
    return torch.random.fork_rng()


def run_identity(prepared: Prepared) -> dict[str, Any]:
    """Return what a checkpoint must agree on with the training that goes on from it, as JSON."""
    plan = {**prepared.plan.to_dict(), "settings": prepared.decision.settings.to_dict()}
    if isinstance(prepared.rows, ParquetRows):
        plan["stream_window"] = prepared.rows.source.window
    for free in ("device", "checkpoint_every", "keep_checkpoints"):  # may change when it goes on
        plan["settings"].pop(free)
    check_plain(plan)
    sums = hashlib.sha256(prepared.rows.digest().encode())
    if prepared.rows.weights is not None:
        sums.update(prepared.rows.weights.cpu().numpy().tobytes())
    if prepared.valid is not None:
        sums.update(prepared.valid.digest().encode())
    return {
        "fingerprint": prepared.model.hierarchy.fingerprint,
        "data": sums.hexdigest(),
        "plan": json.loads(json.dumps(plan)),  # as it will be read back
    }


def check_identity(path: Path, stored: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
    """Refuse to go on from the checkpoint of another training, naming what differs."""
    if stored is None:
        raise CheckpointError(f"{path} does not tell its training; train anew in another folder")
    if stored["fingerprint"] != now["fingerprint"]:
        raise CheckpointError(
            f"{path} is of another hierarchy: fingerprint {stored['fingerprint'][:12]}, this "
            f"one has {now['fingerprint'][:12]}"
        )
    if stored["data"] != now["data"]:
        raise CheckpointError(f"{path} was trained on other rows; train anew in another folder")
    before, after = flat(stored["plan"]), flat(now["plan"])
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            raise CheckpointError(
                f"{path} was trained with {name}={before.get(name)}, now {name}="
                f"{after.get(name)}; use the same, or train anew in another folder"
            )


def flat(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan with its settings among its own values."""
    return {**{k: v for k, v in plan.items() if k != "settings"}, **plan["settings"]}


def describe_run(prepared: Prepared, dataset: Dataset, trainer: Trainer | None) -> dict[str, Any]:
    """Return what the configuration of a model tells about its training; None before it."""
    loss = prepared.losses[0]
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
            "inputs": "text" if dataset.is_text else f"{prepared.rows.inputs.shape[1]:,} numbers",
        },
        "feature_names": list(dataset.feature_names),
        "recipe": {
            "name": decision.name,
            "because": decision.why,
            "loss": recipe.loss,
            "loss_options": dict(recipe.loss_options),
            "curriculum": loss.curriculum if isinstance(loss, HCLLoss) else None,
        },
        "plan": prepared.plan.to_dict(),
        "settings": decision.settings.to_dict(),
        "training": {}
        if trainer is None
        else {
            "steps": trainer.step,
            "best_epoch": trainer.best_epoch if patience else None,
            "best_value": trainer.best_value if patience else None,
            "improved_at_the_last_epoch": trainer.improved_last if prepared.valid else None,
        },
        "versions": versions(),
        "metrics": {},
    }
