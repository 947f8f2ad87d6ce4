"""Compare: train several losses over several seeds on one dataset, and keep every decision.

All seeds of a loss train at once, stacked. Seed k draws the same first weights and reads the same
batches under every loss, so runs are compared in pairs. Losses train on the split "train", stop
early on "valid" and are judged on "test", which nothing else looks at.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.describe import describe
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.hierarchy.labels import Labels
from hierlearn.losses.hcl.loss import CollapseWarning
from hierlearn.metrics import METRICS
from hierlearn.pipeline.pipeline import versions
from hierlearn.studies.jobs import do_jobs
from hierlearn.studies.runner import Job
from hierlearn.studies.study import Study
from hierlearn.training.plan import Plan
from hierlearn.training.processes import find_device
from hierlearn.training.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.studies.candidates import Candidate

TABLE = ("hit@1", "mrr", "hier-dist", "lca-height", "terminal-accuracy", "mean-level", "au-prc")
ALWAYS = ("level-accuracy", "mistake-severity", "leaf-accuracy")  # what the report also shows
EARLY = {"epochs": 100, "patience": 10, "metric": "au-prc"}  # unless the caller says otherwise


def compare(
    dataset: Dataset,
    entries: Sequence[Candidate],
    out: Path | str,
    *,
    seeds: int = 10,
    seed: int = 0,
    metrics: Sequence[str] = TABLE,
    settings: Mapping[str, Any] | None = None,
    by_entry: Mapping[str, Mapping[str, Any]] | None = None,
    network: Mapping[str, Any] | None = None,
    valid_fraction: float = 0.15,
    force: bool = False,
    about: Mapping[str, Any] | None = None,
    jobs: int = 1,
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
        valid_fraction: share of the training rows to stop early on, where no split "valid" is.
        force: begin anew in a folder with another study.
        about: more facts for study.json that need not agree to go on.
        jobs: how many entries train at a time, each in a process of its own; above 1 the calling
            script needs the usual ``if __name__ == "__main__"``.
        on_step: told the entry's number, the step and all steps of a training.
    """
    if "test" not in dataset.splits or not len(dataset.splits["test"]):
        raise HierlearnError(
            f"{dataset.name or 'the dataset'} has no split 'test' to compare on; name one with "
            f"--split, or set rows aside with --test-fraction"
        )
    for name in (*metrics, *ALWAYS):
        if name not in METRICS:
            raise HierlearnError(unknown_name("metric", name, METRICS))
    if jobs < 1:
        raise HierlearnError(f"jobs must be at least 1, not {jobs}")
    common = {**EARLY, **(settings or {}), "seed": seed, "ensemble_size": seeds}
    Settings.from_dict(common)
    facts: dict[str, Any] = {
        "entries": [asdict(entry) for entry in entries],
        "seeds": [seed + number for number in range(seeds)],
        "metrics": list(dict.fromkeys(metrics)),
        "settings": common,
        "by_entry": {key: dict(value) for key, value in (by_entry or {}).items()},
        "network": dict(network or {}),
        "valid_fraction": valid_fraction,
        "dataset": {**describe(dataset), "digest": dataset.digest()[:16]},
        "about": {"versions": versions(), **(about or {})},
    }
    new = not (Path(out) / "study.json").is_file()
    study = Study.begin(out, facts, force=force)
    try:
        run_entries(study, dataset, entries, by_entry or {}, jobs, on_step)
    except HierlearnError:
        if new and not study.runs():  # nothing was trained: the corrected command begins here
            study.discard()
        raise
    return study


def run_entries(
    study: Study,
    dataset: Dataset,
    entries: Sequence[Candidate],
    by_entry: Mapping[str, Mapping[str, Any]],
    jobs: int,
    on_step: Callable[[int, int, int], None] | None,
) -> None:
    """Train and judge the entries of a study that are missing."""
    common = study.facts["settings"]
    test = dataset.split("test")
    study.set_data(
        dataset.hierarchy,
        Labels(test.labels, dataset.hierarchy),
        test.inputs if isinstance(test.inputs, list) else None,
    )
    tasks: dict[int, Job] = {}
    for number, entry in enumerate(entries):
        if study.is_done(entry):
            if on_step is not None:
                on_step(number, 1, 1)
            continue
        changes = dict(by_entry.get(entry.key, {}))
        options = {**entry.options, **changes.pop("loss_options", {})}
        plan = Plan(
            **{**entry.plan(), **({"loss_options": options} if entry.loss else {})},
            network=study.facts["network"].get("name"),
            network_options=study.facts["network"].get("options", {}),
            valid_fraction=study.facts["valid_fraction"],
            settings={**common, **changes},
        )
        wanted = tuple(dict.fromkeys((*study.facts["metrics"], *ALWAYS)))
        device = str(find_device(common.get("device", "auto")))
        tasks[number] = Job(entry, plan, wanted, tuple(study.facts["seeds"]), device)
    for number, done in do_jobs(tasks, dataset, jobs, on_step):
        study.add(entries[number], done.runs, done.rows, done.log, done.selected)
        if done.collapsed is not None:
            warnings.warn(f"{entries[number].key}: {done.collapsed}", CollapseWarning, stacklevel=2)
