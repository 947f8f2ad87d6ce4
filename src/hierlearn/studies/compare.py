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
from hierlearn.studies.protocol import Protocol
from hierlearn.studies.runner import Job
from hierlearn.studies.study import Study
from hierlearn.training.plan import Plan
from hierlearn.training.processes import find_device
from hierlearn.training.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.studies.candidates import Candidate

ALWAYS = ("level-accuracy", "mistake-severity", "leaf-accuracy")  # what the report also shows


def compare(
    dataset: Dataset,
    candidates: Sequence[Candidate],
    out: Path | str,
    protocol: Protocol | None = None,
    *,
    force: bool = False,
    jobs: int = 1,
    metadata: Mapping[str, Any] | None = None,
    on_step: Callable[[int, int, int], None] | None = None,
) -> Study:
    """Run a study, or resume one that was interrupted.

    Args:
        dataset: with a split "test".
        candidates: what to compare; the first is what the others are tested against.
        out: the study's folder.
        protocol: how to train and judge them; the defaults of Protocol if None.
        force: replace another study in the folder.
        jobs: how many candidates train at a time, each in its own process; above 1 the calling
            script needs the usual ``if __name__ == "__main__"``.
        metadata: more entries for study.json, which may differ when a study is resumed.
        on_step: called with the candidate's number, the step and the number of steps.
    """
    protocol = protocol or Protocol()
    if "test" not in dataset.splits or not len(dataset.splits["test"]):
        raise HierlearnError(
            f"{dataset.name or 'the dataset'} has no split 'test' to compare on; make one with "
            f"hierlearn.studies.splits.with_test_rows"
        )
    for name in (*protocol.metrics, *ALWAYS):
        if name not in METRICS:
            raise HierlearnError(unknown_name("metric", name, METRICS))
    if jobs < 1:
        raise HierlearnError(f"jobs must be at least 1, not {jobs}")
    Settings.from_dict(protocol.training)
    facts: dict[str, Any] = {
        "entries": [asdict(entry) for entry in candidates],
        "seeds": [protocol.seed + number for number in range(protocol.seeds)],
        "metrics": list(dict.fromkeys(protocol.metrics)),
        "settings": protocol.training,
        "by_entry": {key: dict(value) for key, value in protocol.by_candidate.items()},
        "network": dict(protocol.network),
        "valid_fraction": protocol.valid_fraction,
        "dataset": {**describe(dataset), "digest": dataset.digest()[:16]},
        "about": {"versions": versions(), **(metadata or {})},
    }
    new = not (Path(out) / "study.json").is_file()
    study = Study.begin(out, facts, force=force)
    try:
        run_entries(study, dataset, candidates, protocol.by_candidate, jobs, on_step)
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
