"""Compare: train several losses over several seeds on one dataset, and keep every decision.

All seeds of a loss train at once, stacked. Seed k draws the same first weights and reads the same
batches under every loss, so runs are compared in pairs. Losses train on the split "train", stop
early on "valid" and are judged on "test", which nothing else looks at.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.datasets.describe import describe
from hierlearn.decoding.mass import end_scores
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.labels import Labels
from hierlearn.metrics import METRICS
from hierlearn.metrics.ranking import first_ranks
from hierlearn.studies.study import Study
from hierlearn.training.evaluate import measure
from hierlearn.training.model import versions
from hierlearn.training.passes import member_probabilities
from hierlearn.training.plan import Plan
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import Processes, find_device
from hierlearn.training.rows import Rows
from hierlearn.training.settings import Settings
from hierlearn.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.datasets import Dataset
    from hierlearn.studies.entries import Entry
    from hierlearn.training.prepare import Prepared

TABLE = ("hit@1", "mrr", "hier-dist", "hier-dist-zero", "terminal-accuracy", "mean-level", "au-prc")
ALWAYS = ("level-accuracy", "mistake-severity", "leaf-accuracy")  # what the report also shows
EARLY = {"epochs": 100, "patience": 10, "metric": "au-prc"}  # unless the caller says otherwise


def compare(
    dataset: Dataset,
    entries: Sequence[Entry],
    out: Path | str,
    *,
    seeds: int = 10,
    seed: int = 0,
    metrics: Sequence[str] = TABLE,
    settings: Mapping[str, Any] | None = None,
    by_entry: Mapping[str, Mapping[str, Any]] | None = None,
    network: Mapping[str, Any] | None = None,
    valid_share: float = 0.15,
    force: bool = False,
    about: Mapping[str, Any] | None = None,
    on_step: Callable[[int, int, int], None] | None = None,
) -> Study:
    """Run a study, or go on with one that was interrupted.

    Args:
        dataset: with a split "test".
        entries: what to compare; the first is what the others are tested against.
        out: the study's folder.
        seeds: how many runs of each.
        seed: the first of them.
        metrics: of the table, names of METRICS.
        settings: changes to how everything trains.
        by_entry: changes to settings, and options of the loss, of single entries by key.
        network: the network's name and options.
        valid_share: share of the training rows to stop early on, where no split "valid" is.
        force: begin anew in a folder with another study.
        about: more facts for study.json that need not agree to go on.
        on_step: told the entry's number, the step and all steps of a training.
    """
    if "test" not in dataset.splits or not len(dataset.splits["test"]):
        raise HierlearnError(
            f"{dataset.name or 'the dataset'} has no split 'test' to compare on; name one with "
            f"--split, or set rows aside with --test-share"
        )
    for name in (*metrics, *ALWAYS):
        if name not in METRICS:
            raise HierlearnError(unknown_name("metric", name, METRICS))
    common = {**EARLY, **(settings or {}), "seed": seed, "seeds": seeds}
    Settings.from_dict(common)
    facts: dict[str, Any] = {
        "entries": [asdict(entry) for entry in entries],
        "seeds": [seed + number for number in range(seeds)],
        "metrics": list(dict.fromkeys(metrics)),
        "settings": common,
        "by_entry": {key: dict(value) for key, value in (by_entry or {}).items()},
        "network": dict(network or {}),
        "valid_share": valid_share,
        "dataset": describe(dataset),
        "about": {"versions": versions(), **(about or {})},
    }
    study = Study.begin(out, facts, force=force)
    test = dataset.split("test")
    labels = Labels(test.labels, dataset.hierarchy)
    study.set_data(
        dataset.hierarchy, labels, test.inputs if isinstance(test.inputs, list) else None
    )
    for number, entry in enumerate(entries):
        if study.is_done(entry):
            continue
        changes = dict((by_entry or {}).get(entry.key, {}))
        options = {**entry.options, **changes.pop("loss_options", {})}
        plan = Plan(
            **{**entry.plan(), **({"loss_options": options} if entry.loss else {})},
            network=facts["network"].get("name"),
            network_options=facts["network"].get("options", {}),
            valid_share=valid_share,
            settings={**common, **changes},
        )
        begun = time.perf_counter()
        prepared = prepare(dataset, plan, find_device(common.get("device", "auto")))
        log: list[dict[str, Any]] = []
        trainer = fit(prepared, log, on_step and (lambda s, of, n=number: on_step(n, s, of)))
        runs, rows = judge(entry, prepared, trainer, test, labels, study, plan)
        for run in runs:
            run["seconds"] = round((time.perf_counter() - begun) / len(runs), 3)
        study.add(entry, runs, rows, log)
    return study


def fit(
    prepared: Prepared,
    log: list[dict[str, Any]],
    on_step: Callable[[int, int], None] | None = None,
) -> Trainer:
    """Train what was prepared, in this process, without files."""
    device = prepared.rows.device
    trainer = Trainer(
        prepared.model.network,
        prepared.losses,
        prepared.rows,
        prepared.decision.settings,
        link=prepared.model.link,
        valid=prepared.valid,
        terminals=prepared.model.terminals,
        processes=Processes(0, 1, device),
        alike=True,
        on_epoch=log.append,
    )
    if on_step is not None:
        trainer.on_step = lambda step: on_step(step, trainer.steps)
    trainer.train()
    return trainer


def judge(
    entry: Entry,
    prepared: Prepared,
    trainer: Trainer,
    test: Dataset,
    labels: Labels,
    study: Study,
    plan: Plan,
) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Return the runs of an entry, a dictionary a seed, and its decisions on the test rows."""
    model = prepared.model
    assert model.preprocessor is not None
    ready = Rows(model.preprocessor.transform(test.inputs), labels, prepared.rows.device)
    targets = ready.targets(torch.arange(len(ready)))
    wanted = [*dict.fromkeys((*study.facts["metrics"], *ALWAYS))]
    runs: list[dict[str, Any]] = []
    rows: dict[str, list[NDArray[Any]]] = {}
    for member, p in enumerate(member_probabilities(model.network, ready, model.link)):
        for name, values in decisions(p, targets, prepared).items():
            rows.setdefault(name, []).append(values)
        runs.append(
            {
                "entry": entry.key,
                "seed": study.seeds[member],
                "test": measure(p, targets, model.hierarchy, model.terminals, wanted),
                "valid": trainer.best_value[member],
                "best_epoch": trainer.best_epoch[member],
                "still_improving": not trainer.stopped[member] and trainer.improved_last[member],
                "settings": dict(plan.settings),
                "loss_options": dict(plan.loss_options),
            }
        )
    return runs, {name: np.stack(values) for name, values in rows.items()}


def decisions(p: Tensor, targets: Tensor, prepared: Prepared) -> dict[str, NDArray[Any]]:
    """Return what one model decides on each row, (N,) each.

    argmax       the most probable class of all
    terminal     the best terminal class, and its probability
    rank         of the first positive class among all
    """
    model = prepared.model
    ends = torch.tensor(model.terminals, device=p.device)
    terminal = ends[end_scores(p, model.hierarchy)[:, ends].argmax(dim=1)]
    found = {
        "argmax": p.argmax(dim=1),
        "terminal": terminal,
        "rank": first_ranks(p, targets),
    }
    numbers = {name: value.cpu().numpy().astype(np.int32) for name, value in found.items()}
    sure = p.gather(1, terminal[:, None])[:, 0].cpu().numpy().astype(np.float32)
    return {**numbers, "probability": sure}
