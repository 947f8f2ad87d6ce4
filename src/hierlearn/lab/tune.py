"""Tuning: which settings each loss is compared with, chosen on the validation rows alone.

    paper   the learning rate and the options of the network (``search_space`` of its factory) are
            chosen once, for cross entropy, and serve all
    each    every candidate gets the same number of trials over the learning rate and the options
            of its loss that matter most (``search_space``); ``auto`` chooses for itself

A trial trains one model with a seed that no run of the study uses, and stops early; the
trial with the best metric on the validation rows wins. The test rows are not touched. Trials are
jobs, which may run on any Executor, and be shared by several processes through a storage of Optuna.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.lab.candidates import parse_candidate, parse_candidates
from hierlearn.lab.protocol import Protocol, Tune
from hierlearn.lab.trials import TRIAL, Trial, merged, run_trials
from hierlearn.metrics.measure import find_metric
from hierlearn.networks.build import find_factory
from hierlearn.training.prepare import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor

    from hierlearn.datasets import Dataset
    from hierlearn.lab.candidates import Candidate

BASELINE = "bce"  # the candidate that the network is chosen with
RATES = (3e-4, 1e-3, 3e-3)


def tune(
    dataset: Dataset,
    candidates: Sequence[str | Candidate],
    how: Tune,
    protocol: Protocol | None = None,
    *,
    executor: Executor | int = 1,
    out: Path | str | None = None,
    storage: str | None = None,
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
        storage: where processes that run the same search share its trials, by Optuna: a URL of a
            database, such as sqlite:///tune.db, or the path of a journal file.
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
        spaces = [(one, loss_space(one)) for one in losses_and_recipes]
    drawn = [(one, draw(space, protocol.trials, one.key)) for one, space in spaces]
    trials = [Trial.of(one, point, protocol) for one, points in drawn for point in points]
    metric = find_metric(protocol.training["metric"])
    if storage is None or not trials:
        values = run_trials(dataset, trials, executor, None if out is None else Path(out), on_trial)
    else:
        from hierlearn.lab.shared_trials import share_trials

        larger = metric.direction == "up"
        values = share_trials(dataset, trials, storage, larger, executor, on_trial)
    ends = iter(values)
    for candidate, points in drawn:
        results = []
        for point in points:
            value = next(ends)
            results.append((float("nan") if value is None else value, point))
            chosen["trials"].append({"candidate": candidate.key, **point, "value": value})
        best = dict(best_point(results, protocol.training["metric"]))
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


def loss_space(candidate: Candidate) -> list[dict[str, Any]]:
    """Return the learning rates and options of its loss to try for a candidate."""
    return with_rates("loss_options", candidate.search_space)


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


def best_point(results: list[tuple[float, dict[str, Any]]], metric: str) -> dict[str, Any]:
    """Return the point of the best trial; the first where they tie."""
    sign = 1 if find_metric(metric).direction == "up" else -1
    known = [result for result in results if result[0] == result[0]]
    if not known:
        raise HierlearnError(f"no trial gave a finite {metric}; lower the learning rate")
    return max(known, key=lambda result: sign * result[0])[1]
