"""Compare: train losses and recipes over several seeds on one dataset, and store every decision.

All seeds of a candidate train at once, stacked. Seed k draws the same initial weights and reads the
same batches under every loss, so runs are compared in pairs. Losses train on the split "train",
stop early on "valid" and are evaluated on "test", which nothing else looks at; a recipe trains
exactly as ``train`` does.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.dataset import row_names, shown_texts
from hierlearn.datasets.describe import describe
from hierlearn.errors import HierlearnError
from hierlearn.files.writing import WriteError
from hierlearn.hierarchy.labels import Labels
from hierlearn.losses import CollapseWarning
from hierlearn.pipeline.pipeline import versions
from hierlearn.studies.candidates import parse_candidates
from hierlearn.studies.protocol import Protocol
from hierlearn.studies.runner import Task
from hierlearn.studies.splits import check_test_rows
from hierlearn.studies.study import Study
from hierlearn.studies.tasks import run_tasks
from hierlearn.training.processes import find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.studies.candidates import Candidate


def compare(
    dataset: Dataset,
    candidates: Sequence[str | Candidate],
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
        candidates: what to compare, as on the command line ("bce", "hxe:alpha=0.3", "loss:hcl",
            "hcl", "auto") or Candidates; the first is what the others are tested against.
        out: the study's folder.
        protocol: how to train and evaluate them; the defaults of Protocol if None.
        force: replace another study in the folder.
        jobs: how many candidates train at a time, each in its own process; above 1 the calling
            script needs the usual ``if __name__ == "__main__"``, and registers losses and metrics
            of its own outside it.
        metadata: more keys for study.json, which may differ when a study is resumed.
        on_step: called with the candidate's number, the step and the number of steps.
    """
    protocol = protocol or Protocol()
    parsed = parse_candidates(candidates)
    check_test_rows(dataset)
    if jobs < 1:
        raise HierlearnError(f"jobs must be at least 1, not {jobs}")
    protocol.check(parsed)
    new = not (Path(out) / "study.json").is_file()
    config = make_config(dataset, parsed, protocol, metadata)
    try:
        study = Study.begin(out, config, force=force)
    except WriteError as error:
        raise continues(error) from error
    try:
        run_candidates(study, parsed, dataset, protocol, jobs, on_step)
    except WriteError as error:
        raise continues(error) from error
    except HierlearnError:
        if new and not study.runs():  # nothing was trained: the corrected command begins here
            study.discard()
        raise
    return study


def continues(error: WriteError) -> WriteError:
    """Return the error of a file of a study, which says how it goes on."""
    what = str(error).rpartition("; ")[0]
    return WriteError(
        f"{what}; what is finished is kept: free disk space and run the same command again, which "
        f"continues with what is missing"
    )


def make_config(
    dataset: Dataset,
    candidates: Sequence[Candidate],
    protocol: Protocol,
    metadata: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the content of study.json."""
    return {
        "candidates": [asdict(candidate) for candidate in candidates],
        "uses_hierarchy": {one.key: one.uses_hierarchy for one in candidates},
        "seeds": [protocol.seed + number for number in range(protocol.seeds)],
        "metrics": list(dict.fromkeys(protocol.metrics)),
        "settings": protocol.training,
        "by_candidate": {key: dict(value) for key, value in protocol.by_candidate.items()},
        "network": dict(protocol.network),
        "preprocessing": dict(protocol.preprocessing),
        "valid_fraction": protocol.valid_fraction,
        "dataset": {**describe(dataset), "digest": dataset.digest()[:16]},
        "metadata": {"versions": versions(), **(metadata or {})},
    }


def run_candidates(
    study: Study,
    candidates: Sequence[Candidate],
    dataset: Dataset,
    protocol: Protocol,
    jobs: int,
    on_step: Callable[[int, int, int], None] | None,
) -> None:
    """Train and evaluate the candidates of a study that are missing."""
    test = dataset.split("test")
    study.set_data(
        dataset.hierarchy,
        Labels(test.labels, dataset.hierarchy),
        shown_texts(test.inputs),
        row_names(test),
    )
    device = str(find_device(protocol.training.get("device", "auto")))
    metrics, seeds = tuple(study.config["metrics"]), tuple(study.seeds)
    runs = study.runs()
    tasks: dict[int, Task] = {}
    for number, candidate in enumerate(candidates):
        if not study.is_done(candidate, runs):
            plan = protocol.plan(candidate)
            tasks[number] = Task(candidate, plan, metrics, seeds, device)
        elif on_step is not None:
            on_step(number, 1, 1)
    for number, result in run_tasks(tasks, dataset, jobs, on_step):
        study.add(candidates[number], result)
        if result.collapse is not None:
            text = f"{candidates[number].key}: {result.collapse}"
            warnings.warn(text, CollapseWarning, stacklevel=2)
