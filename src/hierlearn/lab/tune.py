"""Tuning: which settings each loss is compared with, chosen on the validation rows alone.

    paper   the learning rate and the options of the network (``search_space`` of its factory) are
            chosen once, for cross entropy, and serve all
    each    every candidate gets the same number of trials over the learning rate and the options
            of its loss that matter most (``search_space``); ``auto`` chooses for itself

A trial trains one model with a seed that no run of the study uses, and stops early; the
trial with the best metric on the validation rows wins. The test rows are not touched. A trial is a
job: a pure function of the rows, a candidate and a point, which may run on any Executor. Values are
kept in ``trials/`` of the study, one file per trial, named after a digest of all that it depends
on: what was tried is not trained again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from hierlearn.errors import DataError, HierlearnError, unknown_name
from hierlearn.files.reading import read_json
from hierlearn.files.writing import atomic_write
from hierlearn.lab.candidates import parse_candidate, parse_candidates
from hierlearn.lab.protocol import VALID_FRACTION, Protocol, Tune
from hierlearn.lab.runner import fit
from hierlearn.lab.study import TRIALS
from hierlearn.metrics.measure import find_metric
from hierlearn.networks.build import find_factory
from hierlearn.service.engine import Job, engine_of
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from hierlearn.datasets import Dataset
    from hierlearn.lab.candidates import Candidate
    from hierlearn.training.settings import Plan


BASELINE = "bce"  # the candidate that the network is chosen with
RATES = (3e-4, 1e-3, 3e-3)
TRIAL = {"seed": 1_000_003, "ensemble_size": 1}  # no run of a study has this seed


def tune(
    dataset: Dataset,
    candidates: Sequence[str | Candidate],
    how: Tune,
    protocol: Protocol | None = None,
    *,
    executor: Executor | int = 1,
    out: Path | str | None = None,
    on_trial: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return what was chosen: ``by_candidate`` and ``network`` of a Protocol, and every trial.

    Args:
        dataset: its split "test" is not looked at.
        candidates: what will be compared, as ``compare`` takes them.
        how: "none", "paper" or "each".
        protocol: how to train, with the number of trials of each search; the defaults if None.
        executor: where trials run, as ``compare`` takes it.
        out: the folder of the study, where the values of trials are kept.
        on_trial: called with the number of trials done and the number of all trials.
    """
    protocol = protocol or Protocol()
    parsed = parse_candidates(candidates)
    if how not in get_args(Tune):
        raise HierlearnError(unknown_name("tuning method", str(how), get_args(Tune)))
    chosen: dict[str, Any] = {"network": dict(protocol.network), "by_candidate": {}, "trials": []}
    if how == "none":
        return chosen
    losses_and_recipes = [one for one in parsed if not one.is_pipeline]
    if how == "paper":
        spaces = [(parse_candidate(BASELINE), network_space(dataset, protocol))]
    else:
        spaces = [(one, with_rates("loss_options", one.search_space)) for one in losses_and_recipes]
    drawn = [(one, draw(space, protocol.trials, one.key)) for one, space in spaces]
    trials = [Trial.of(one, point, protocol) for one, points in drawn for point in points]
    ends = iter(run_trials(dataset, trials, executor, None if out is None else Path(out), on_trial))
    for candidate, points in drawn:
        results = []
        for point in points:
            value = next(ends)
            results.append((float("nan") if value is None else value, point))
            chosen["trials"].append({"candidate": candidate.key, **point, "value": value})
        metric = protocol.training["metric"]
        sign = 1 if find_metric(metric).direction == "up" else -1
        known = [result for result in results if result[0] == result[0]]
        if not known:
            raise HierlearnError(f"no trial gave a finite {metric}; lower the learning rate")
        best = dict(max(known, key=lambda result: sign * result[0])[1])  # the first of equals
        chosen["network"] = merged(chosen["network"], best.pop("network_options", {}))
        serves = losses_and_recipes if how == "paper" else [candidate]
        chosen["by_candidate"] |= {one.key: dict(best) for one in serves}
    return chosen


def network_space(dataset: Dataset, protocol: Protocol) -> list[dict[str, Any]]:
    """Return the options of the network, where the protocol leaves them open, and rates to try."""
    name = protocol.network.get("name") or default_network(dataset, protocol)
    fixed = protocol.network.get("options", {})
    found = getattr(find_factory(name), "search_space", {})
    return with_rates(
        "network_options", {option: found[option] for option in found if option not in fixed}
    )


def default_network(dataset: Dataset, protocol: Protocol) -> str:
    """Return the name of the network that is trained where none is named."""
    plan = protocol.plan(parse_candidate(BASELINE), TRIAL)
    spec = prepare(dataset, plan, torch.device("cpu")).network_spec
    assert spec is not None  # no module was passed in
    return spec.name


def with_rates(key: str, space: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every learning rate with every combination of options, those under a key."""
    if not space:
        return [{"learning_rate": rate} for rate in RATES]
    return [
        {"learning_rate": rate, key: dict(zip(space, values, strict=True))}
        for rate, *values in itertools.product(RATES, *space.values())
    ]


def draw(space: list[dict[str, Any]], trials: int, key: str) -> list[dict[str, Any]]:
    """Return as many points of a space as there are trials, the same ones every time."""
    if trials >= len(space):
        return space
    return random.Random(f"trials of {key}").sample(space, trials)


# ---------------------------------------- trials


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
        changes = {**point, **TRIAL}
        network = merged(protocol.network, changes.pop("network_options", {}))
        held = VALID_FRACTION if protocol.valid_fraction is None else protocol.valid_fraction
        changed = protocol.with_changes(network=network, valid_fraction=held)
        device = protocol.training.get("device", "auto")
        return cls(candidate, point, changed.plan(candidate, changes), device)

    def key(self, digest: str) -> str:
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
    paths = [None if out is None else out / TRIALS / f"{one.key(digest)}.json" for one in trials]
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
                with atomic_write(path) as file:
                    file.write(json.dumps({**about, "value": values[number]}) + "\n")
            if on_trial is not None:
                on_trial(len(values), len(trials))
    return [values[number] for number in range(len(trials))]


def read_value(path: Path) -> float | None:
    """Return the value of a trial; None where it had no finite one."""
    found = read_json(path)
    value = found.get("value", "") if isinstance(found, dict) else ""
    if not isinstance(value, (int, float, type(None))):
        raise DataError(f"{path} is damaged: it holds no value of a trial; remove it")
    return None if value is None else float(value)
