"""Trials: the jobs of a search. Each is a pure function of the rows, a candidate and a point.

A trial trains one model with a seed that no run of a study uses; its value is the metric of the
weights on the validation rows. Values are kept in ``trials/`` of the study, one file per trial,
named after a digest of all that it depends on: what was tried is not trained again.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hierlearn.lab.protocol import VALID_FRACTION
from hierlearn.lab.runner import fit
from hierlearn.lab.trial_files import read_value, trial_path, write_value
from hierlearn.service.engine import Job, engine_of
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from hierlearn.datasets import Dataset
    from hierlearn.lab.candidates import Candidate
    from hierlearn.lab.protocol import Protocol
    from hierlearn.training.settings import Plan

TRIAL = {"seed": 1_000_003, "ensemble_size": 1}  # no run of a study has this seed


@dataclass(frozen=True)
class Trial:
    """A point of a search.

    Attributes:
        candidate: what is tuned.
        point: its settings, and options of its loss or the network.
        plan: how it is trained.
        device: where.
    """

    candidate: Candidate
    point: Mapping[str, Any]
    plan: Plan
    device: str

    @classmethod
    def of(cls, candidate: Candidate, point: Mapping[str, Any], protocol: Protocol) -> Trial:
        """Return the trial of a point under a protocol."""
        changes = {**point, **TRIAL}
        network = merged(protocol.network, changes.pop("network_options", {}))
        held = VALID_FRACTION if protocol.valid_fraction is None else protocol.valid_fraction
        changed = protocol.with_changes(network=network, valid_fraction=held)
        device = protocol.training.get("device", "auto")
        return cls(candidate, point, changed.plan(candidate, changes), device)

    def key(self, digest: str) -> str:
        """Return a digest of the trial on rows with a digest."""
        plan = self.plan.to_dict()
        plan["settings"] = {k: v for k, v in plan["settings"].items() if k != "device"}
        text = json.dumps([digest, self.candidate.key, plan], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def merged(network: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network's name and options with some options changed."""
    if not options:
        return dict(network)
    return {**network, "options": {**network.get("options", {}), **options}}


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
    out: Path | None = None,
    on_trial: Callable[[int, int], None] | None = None,
) -> list[float | None]:
    """Return the values of trials, in order; those that are known already are not run.

    Args:
        dataset: the rows.
        trials: what to try.
        executor: where, as ``compare`` takes it.
        out: the study's folder, where values are kept; None keeps none.
        on_trial: called with the number of trials done and the number of all trials.
    """
    digest = dataset.digest()
    paths = [None if out is None else trial_path(out, one.key(digest)) for one in trials]
    values: dict[int, float | None] = {
        number: read_value(path)
        for number, path in enumerate(paths)
        if path is not None and path.is_file()
    }
    missing = [number for number in range(len(trials)) if number not in values]
    if on_trial is not None and values:
        on_trial(len(values), len(trials))
    jobs = (Job(run_trial, dataset, (trials[number],)) for number in missing)
    with engine_of(executor) as engine, closing(engine.run(jobs)) as ends:
        for end in ends:
            number = missing[end.number]
            values[number], path = end.result(), paths[number]
            if path is not None:
                about = {"candidate": trials[number].candidate.key, **trials[number].point}
                write_value(path, about, values[number])
            if on_trial is not None:
                on_trial(len(values), len(trials))
    return [values[number] for number in range(len(trials))]
