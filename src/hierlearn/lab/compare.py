"""Compare: train losses and recipes over several seeds on one dataset, and store every decision.

All seeds of a candidate train at once, stacked. Seed k draws the same initial weights and reads the
same batches under every loss, so runs are compared in pairs. Losses train on the split "train",
stop early on "valid" and are evaluated on "test", which nothing else looks at; a recipe trains
exactly as ``train`` does.

A candidate is a job: a pure function of the dataset, its plan and its seeds, which may run on any
Executor. Its result is stored as it comes, so that a study which is begun again runs only what is
missing, wherever it runs.
"""

from __future__ import annotations

import warnings
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from hierlearn.datasets.dataset import row_names, shown_texts
from hierlearn.datasets.describe import describe
from hierlearn.errors import HierlearnError
from hierlearn.files.writing import WriteError
from hierlearn.hierarchy.labels import Labels
from hierlearn.lab.candidates import parse_candidates
from hierlearn.lab.protocol import TEST_SHARE, Protocol
from hierlearn.lab.runner import Task, check_test_rows, run_task, with_test_rows
from hierlearn.lab.study import Study
from hierlearn.lab.summary import publish
from hierlearn.losses import CollapseWarning
from hierlearn.pipeline.pipeline import versions
from hierlearn.service.engine import Job, engine_of
from hierlearn.training.processes import find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from hierlearn.datasets import Dataset
    from hierlearn.lab.candidates import Candidate


class StudyWarning(UserWarning):
    """A candidate was left out of a study."""


def write_study(study: Study) -> tuple[dict[str, Any], list[Path]]:
    """Write summary.json, the tables and the page of a study; return the summary and the paths."""
    from hierlearn.lab.pages.page import write_report

    summary, paths = publish(study)
    return summary, [*paths, write_report(study.folder, summary=summary)]


def compare(
    dataset: Dataset,
    candidates: Sequence[str | Candidate],
    out: Path | str,
    protocol: Protocol | None = None,
    **options: Any,
) -> Study:
    """Run a study, or resume one that was interrupted, and write its tables and its page.

    Args:
        dataset: the rows; without a split "test" a fifth of them, drawn by the protocol's seed, is
            set aside for testing, as the command does.
        candidates: what to compare, as on the command line ("bce", "hxe:alpha=0.3", "loss:hcl",
            "hcl", "auto", "package.module:name") or Candidates; the first is what the others are
            tested against.
        out: the study's folder; summary.json, table.csv, table.md, table.tex and report.html are
            in it when this returns.
        protocol: how to train and evaluate them; the defaults of Protocol if None.
        options: of ``run_study``, which writes no tables: force, executor, metadata and on_step.
    """
    protocol = protocol or Protocol()
    dataset, _ = with_test_rows(dataset, TEST_SHARE, protocol.seed)
    study = run_study(dataset, candidates, out, protocol, **options)
    write_study(study)
    return study


def run_study(
    dataset: Dataset,
    candidates: Sequence[str | Candidate],
    out: Path | str,
    protocol: Protocol | None = None,
    *,
    force: bool = False,
    executor: Executor | int = 1,
    metadata: Mapping[str, Any] | None = None,
    on_step: Callable[[int, int, int], None] | None = None,
) -> Study:
    """Run a study, or resume one that was interrupted.

    Args:
        dataset: the rows; without a split "test" a fifth of them, drawn by the protocol's seed, is
            set aside for testing, as the command does.
        candidates: what to compare, as on the command line ("bce", "hxe:alpha=0.3", "loss:hcl",
            "hcl", "auto") or Candidates; the first is what the others are tested against. Of
            ["all"], those that cannot be trained on these rows are left out with a warning.
        out: the study's folder.
        protocol: how to train and evaluate them; the defaults of Protocol if None.
        force: replace another study in the folder.
        executor: where candidates are trained: any Executor, such as one of ``open_executor``, or
            how many processes of this machine train at a time; above 1 the calling script needs
            the usual ``if __name__ == "__main__"``, and registers losses and metrics of its own
            outside it.
        metadata: more keys for study.json, which may differ when a study is resumed.
        on_step: called with the candidate's number, the step and the number of steps.
    """
    protocol = protocol or Protocol()
    begun = begin(dataset, candidates, out, protocol, force=force, metadata=metadata)
    begun.leaves_out = begun.study.candidates == parse_candidates("all")
    run_studies([begun], protocol, executor, on_step)
    if begun.left_out and not begun.study.finished:
        why = next(iter(begun.left_out.values()))
        raise HierlearnError(f"no method can be trained on these rows: {why}")
    for key, why in begun.left_out.items():
        warnings.warn(f"{key} is left out: {why}", StudyWarning, stacklevel=2)
    return begun.study


@dataclass
class Comparison:
    """A study that has begun, and what is missing in it.

    Attributes:
        study: its folder.
        dataset: what its candidates are trained and evaluated on.
        tasks: those that are missing.
        failed: whether a candidate raised an error.
        leaves_out: whether a candidate that cannot be trained on these rows is left out, as where
            "all" were asked for; else its error is raised.
        left_out: why, by key.
    """

    study: Study
    dataset: Dataset
    tasks: list[Task]
    failed: bool = False
    leaves_out: bool = False
    left_out: dict[str, str] = field(default_factory=dict)


def begin(
    dataset: Dataset,
    candidates: Sequence[str | Candidate],
    out: Path | str,
    protocol: Protocol,
    *,
    force: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> Comparison:
    """Begin a study, or open the one that was interrupted; the arguments are those of ``compare``.

    Returns:
        What ``run_studies`` runs.
    """
    parsed = parse_candidates(candidates)
    check_test_rows(dataset)
    protocol.check(parsed)
    config = make_config(dataset, parsed, protocol, metadata)
    try:
        study = Study.begin(out, config, force=force)
        test = dataset.split("test")
        labels = Labels(test.labels, dataset.hierarchy)
        study.set_data(dataset.hierarchy, labels, shown_texts(test.inputs), row_names(test))
    except WriteError as error:
        raise continues(error) from error
    metrics, seeds = tuple(study.config["metrics"]), tuple(study.seeds)
    device = protocol.training.get("device", "auto")
    tasks = [
        Task(one, protocol.plan(one), metrics, seeds, device)
        for one in parsed
        if not study.is_done(one)
    ]
    return Comparison(study, dataset, tasks)


def run_studies(
    studies: Iterable[Comparison],
    protocol: Protocol,
    executor: Executor | int,
    on_step: Callable[[int, int, int], None] | None = None,
    on_error: Callable[[Comparison, HierlearnError], None] | None = None,
) -> None:
    """Train and evaluate what is missing in some studies, all at once where the executor can.

    Args:
        studies: what ``begin`` returned, made as workers become free.
        protocol: of the studies.
        executor: where candidates are trained.
        on_step: called with the candidate's number among all studies, the step and the number of
            steps.
        on_error: called with a study and the error of a candidate, which ends this study only; the
            error is raised if None.
    """
    opened: list[tuple[Comparison, Task, int]] = []  # by number of the job
    numbers = count()
    report = on_step or (lambda *_: None)

    def jobs() -> Iterator[Job]:
        for study in studies:
            for _ in range(len(study.study.candidates) - len(study.tasks)):
                report(next(numbers), 1, 1)  # it was finished before
            for task in study.tasks:
                if not study.failed:
                    opened.append((study, task, next(numbers)))
                    yield Job(run_task, study.dataset, (task,))

    several = isinstance(executor, int) and executor > 1
    gpu = several and find_device(protocol.training.get("device", "auto")).type != "cpu"
    with (
        engine_of(executor, gpu=gpu) as engine,
        closing(
            engine.run(jobs(), on_step and (lambda job, *step: report(opened[job][2], *step)))
        ) as outcomes,
    ):
        for outcome in outcomes:
            study, task, _ = opened[outcome.number]
            try:
                result = outcome.result()
                study.study.add(task.candidate, result)
                if result.collapse is not None:
                    text = f"{task.candidate.key}: {result.collapse}"
                    warnings.warn(text, CollapseWarning, stacklevel=2)
            except HierlearnError as error:
                if study.leaves_out and not isinstance(error, WriteError):
                    study.left_out[task.candidate.key] = str(error)
                    continue
                study.failed = True
                raised = continues(error) if isinstance(error, WriteError) else error
                if on_error is None:
                    raise raised from error.__cause__
                on_error(study, raised)


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
    return {
        "candidates": [as_json(candidate) for candidate in candidates],
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


def as_json(candidate: Candidate) -> dict[str, Any]:
    """Return a candidate as study.json holds it; settings of its own only where there are any."""
    found = asdict(candidate)
    return found if found["settings"] else {k: v for k, v in found.items() if k != "settings"}
