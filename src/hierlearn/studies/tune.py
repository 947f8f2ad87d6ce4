"""Tuning: which settings each loss is compared with, chosen on the validation rows alone.

    paper   the learning rate and the options of the network (``search_space`` of its factory) are
            chosen once, for cross entropy, and serve all
    each    every candidate gets the same number of trials over the learning rate and the options
            of its loss that matter most (``search_space``); ``auto`` chooses for itself

A trial trains one model with a seed that no run of the study uses, and stops early; the
trial with the best metric on the validation rows wins. The test rows are not touched.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any, get_args

import torch

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.metrics.registry import find_metric
from hierlearn.networks.build import find_factory
from hierlearn.studies.candidates import parse_candidate, parse_candidates
from hierlearn.studies.protocol import VALID_FRACTION, Protocol, Tune
from hierlearn.studies.runner import fit
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.studies.candidates import Candidate

BASELINE = "bce"  # the candidate that the network is chosen with
RATES = (3e-4, 1e-3, 3e-3)
TRIAL = {"seed": 1_000_003, "ensemble_size": 1}  # no run of a study has this seed


def tune(
    dataset: Dataset,
    candidates: Sequence[str | Candidate],
    how: Tune,
    protocol: Protocol | None = None,
    *,
    on_trial: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return what was chosen: ``by_candidate`` and ``network`` of a Protocol, and every trial.

    Args:
        dataset: its split "test" is not looked at.
        candidates: what will be compared, as ``compare`` takes them.
        how: "none", "paper" or "each".
        protocol: how to train, with the number of trials of each search; the defaults if None.
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
    total = sum(len(points) for _, points in drawn)
    for candidate, points in drawn:
        results = []
        for point in points:
            value = run_trial(dataset, candidate, point, protocol)
            results.append((value, point))
            chosen["trials"].append({"candidate": candidate.key, **point, "value": value})
            if on_trial is not None:
                on_trial(len(chosen["trials"]), total)
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


def run_trial(
    dataset: Dataset, candidate: Candidate, point: Mapping[str, Any], protocol: Protocol
) -> float:
    """Train one model and return the metric of its weights on the validation rows."""
    changes = {**point, **TRIAL}
    network = merged(protocol.network, changes.pop("network_options", {}))
    held = VALID_FRACTION if protocol.valid_fraction is None else protocol.valid_fraction
    plan = protocol.with_changes(network=network, valid_fraction=held).plan(candidate, changes)
    prepared = prepare(dataset, plan, find_device(protocol.training.get("device", "auto")))
    log: list[dict[str, Any]] = []
    stopping = fit(prepared, log).stopping
    if stopping.patience is None:  # the last weights are the ones that are kept
        (value,) = log[-1].get("valid", {}).get(prepared.decision.settings.metric, [None])
    else:
        value = stopping.value[0]
    return float("nan") if value is None else float(value)


def merged(network: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network's name and options with some options changed."""
    if not options:
        return dict(network)
    return {**network, "options": {**network.get("options", {}), **options}}


def best_point(results: list[tuple[float, dict[str, Any]]], metric: str) -> dict[str, Any]:
    """Return the point of the best trial; the first where they tie."""
    sign = 1 if find_metric(metric).direction == "up" else -1
    known = [result for result in results if result[0] == result[0]]
    if not known:
        raise HierlearnError(f"no trial gave a finite {metric}; lower the learning rate")
    return max(known, key=lambda result: sign * result[0])[1]
