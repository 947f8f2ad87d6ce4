"""Tuning: the settings that each candidate is compared with, chosen on the validation rows alone.

Every candidate gets the same number of trials over the learning rate and the options of its loss
that matter most (``search_space``); ``auto`` chooses for itself. A trial trains one model with a
seed that no run of the study uses, and stops early; the trial with the best metric on the
validation rows wins. The test rows are not touched. A trial is a job: a pure function of the rows,
a candidate and a point, which may run on any Executor. Values are kept in ``trials/`` of the study,
one file per trial, named after a digest of all that it depends on: what was tried is not trained
again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hierlearn.errors import DataError, HierlearnError
from hierlearn.files.reading import read_json
from hierlearn.files.writing import atomic_write
from hierlearn.lab.candidates import parse_candidates
from hierlearn.lab.protocol import VALID_FRACTION, Protocol
from hierlearn.lab.runner import fit
from hierlearn.lab.study import TRIALS
from hierlearn.metrics.measure import find_metric
from hierlearn.service.engine import Job, engine_of
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from hierlearn.datasets import Dataset
    from hierlearn.lab.candidates import Candidate
    from hierlearn.training.settings import Plan


RATES = (3e-4, 1e-3, 3e-3)
TRIAL = {"seed": 1_000_003, "ensemble_size": 1}  # no run of a study has this seed


@dataclass(frozen=True)
class Trial:
    """A point of a search: the candidate, its settings and options, and how it is trained."""

    candidate: Candidate
    point: Mapping[str, Any]
    plan: Plan
    device: str

    def path(self, folder: Path | str, digest: str) -> Path:
        """Return the file that keeps the value, named after all that it depends on."""
        plan = self.plan.to_dict()
        plan["settings"] = {k: v for k, v in plan["settings"].items() if k != "device"}
        text = json.dumps([digest, self.candidate.key, plan], sort_keys=True)
        return Path(folder) / TRIALS / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def tune(
    dataset: Dataset,
    candidates: Sequence[str | Candidate],
    trials: int,
    protocol: Protocol | None = None,
    *,
    executor: Executor | int = 1,
    out: Path | str | None = None,
    on_trial: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return what was chosen: ``by_candidate`` of a Protocol, and every trial.

    Args:
        dataset: its split "test" is not looked at.
        candidates: what will be compared, as ``compare`` takes them.
        trials: of each candidate.
        protocol: how to train; the defaults if None.
        executor: where trials run, as ``compare`` takes it.
        out: the folder of the study, where the values of trials are kept.
        on_trial: called with the number of trials done and the number of all trials.
    """
    protocol = protocol or Protocol()
    held = VALID_FRACTION if protocol.valid_fraction is None else protocol.valid_fraction
    changed = protocol.with_changes(valid_fraction=held)
    metric, device = protocol.training["metric"], protocol.training.get("device", "auto")
    sign = 1 if find_metric(metric).direction == "up" else -1
    every = [
        Trial(one, point, changed.plan(one, {**point, **TRIAL}), device)
        for one in parse_candidates(candidates)
        if not one.is_pipeline
        for point in points_of(one, trials)
    ]
    values = run_trials(dataset, every, executor, out, on_trial)
    chosen: dict[str, Any] = {"by_candidate": {}, "trials": []}
    best: dict[str, float] = {}
    for trial, value in zip(every, values, strict=True):
        key = trial.candidate.key
        chosen["trials"].append({"candidate": key, **trial.point, "value": value})
        if value is not None and (key not in best or sign * value > sign * best[key]):
            best[key], chosen["by_candidate"][key] = value, dict(trial.point)
    for trial in every:
        if trial.candidate.key not in best:
            raise HierlearnError(
                f"no trial of {trial.candidate.key} gave a finite {metric}; lower the learning rate"
            )
    return chosen


def points_of(candidate: Candidate, trials: int) -> list[dict[str, Any]]:
    """Return at most so many learning rates and options of a loss, the same ones every time."""
    space = candidate.search_space
    options = [dict(zip(space, one, strict=True)) for one in itertools.product(*space.values())]
    points: list[dict[str, Any]] = [
        {"learning_rate": rate, **({"loss_options": one} if one else {})}
        for rate in RATES
        for one in options
    ]
    if trials >= len(points):
        return points
    return random.Random(f"trials of {candidate.key}").sample(points, trials)


# ---------------------------------------- trials


def run_trial(
    dataset: Dataset, trial: Trial, on_step: Callable[[int, int], None] | None = None
) -> float | None:
    """Train one model; return the metric of its weights on the validation rows, if it has one."""
    prepared = prepare(dataset, trial.plan, find_device(trial.device))
    log: list[dict[str, Any]] = []
    stopping = fit(prepared, log, on_step).stopping
    if stopping.patience is None:  # the last weights are the ones that are kept
        (value,) = log[-1].get("valid", {}).get(prepared.decision.settings.metric, [None])
    else:
        value = stopping.value[0]
    return None if value is None or value != value else float(value)


def run_trials(
    dataset: Dataset,
    trials: Sequence[Trial],
    executor: Executor | int = 1,
    out: Path | str | None = None,
    on_trial: Callable[[int, int], None] | None = None,
) -> list[float | None]:
    """Return the values of trials, in order; those that are known already are not run.

    The arguments are those of ``tune``.
    """
    digest = dataset.digest()
    paths = [None if out is None else one.path(out, digest) for one in trials]
    values: dict[int, float | None] = {
        number: read_value(path)
        for number, path in enumerate(paths)
        if path is not None and path.is_file()
    }
    missing = [number for number in range(len(trials)) if number not in values]
    on_trial = on_trial or (lambda *_: None)
    if values:
        on_trial(len(values), len(trials))
    jobs = (Job(run_trial, dataset, (trials[number],)) for number in missing)
    with engine_of(executor) as engine, closing(engine.run(jobs)) as ends:
        for end in ends:
            number = missing[end.number]
            values[number], path = end.result(), paths[number]
            if path is not None:
                about = {"candidate": trials[number].candidate.key, **trials[number].point}
                with atomic_write(path) as file:
                    file.write(json.dumps({**about, "value": values[number]}) + "\n")
            on_trial(len(values), len(trials))
    return [values[number] for number in range(len(trials))]


def read_value(path: Path) -> float | None:
    """Return the value of a trial; None where it had no finite one."""
    found = read_json(path)
    value = found.get("value", "") if isinstance(found, dict) else ""
    if not isinstance(value, (int, float, type(None))):
        raise DataError(f"{path} is damaged: it holds no value of a trial; remove it")
    return None if value is None else float(value)
