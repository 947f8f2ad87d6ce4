"""Tuning: which settings each loss is compared with, chosen on the validation rows alone.

    paper   the learning rate and the network are chosen once, for cross entropy, and serve all
    each    every loss gets the same number of trials over learning rate and its own parameter

A trial trains one model with a seed that no run of the study uses, and stops early; the
trial with the best metric on the validation rows wins. The test rows are not touched.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any, get_args

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.metrics import METRICS
from hierlearn.studies.protocol import Protocol, Tune
from hierlearn.studies.runner import fit
from hierlearn.training.plan import Plan
from hierlearn.training.prepare import prepare
from hierlearn.training.processes import find_device

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hierlearn.datasets import Dataset
    from hierlearn.studies.candidates import Candidate

RATES = (3e-4, 1e-3, 3e-3)
WIDTHS = (400, 800)
DROPOUTS = (0.25, 0.5)
OWN: dict[str, tuple[str, tuple[Any, ...]]] = {  # the parameter that matters most to each loss
    "focal": ("gamma", (0.5, 1.0, 2.0)),
    "hxe": ("alpha", (0.1, 0.3, 0.5)),
    "soft-labels": ("beta", (5.0, 10.0, 20.0)),
    "hcl": ("floor", (0.1, 0.3, 0.5)),
    "sample-curriculum": ("floor", (0.0, 0.1, 0.3)),
}
TRIAL_SEED = 1_000_003  # no run of a study has it


def tune(
    dataset: Dataset,
    candidates: Sequence[Candidate],
    how: Tune,
    protocol: Protocol | None = None,
    *,
    on_trial: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Return what was chosen: ``by_candidate`` and ``network`` of a Protocol, and every trial.

    Args:
        dataset: its split "test" is not looked at.
        candidates: what will be compared.
        how: "none", "paper" or "each".
        protocol: how to train, with the number of trials of each search; the defaults if None.
        on_trial: called with the number of trials done and the number of all trials.
    """
    protocol = protocol or Protocol()
    if how not in get_args(Tune):
        raise HierlearnError(unknown_name("way to tune", str(how), get_args(Tune)))
    chosen: dict[str, Any] = {"network": dict(protocol.network), "by_candidate": {}, "trials": []}
    if how == "none":
        return chosen
    common = {**protocol.training, "seed": TRIAL_SEED, "ensemble_size": 1}
    if how == "paper":
        spaces = {"bce": network_space(chosen["network"], dataset.is_text)}
        plans = {"bce": {"loss": "bce", "link": "from-loss"}}
    else:
        spaces = {one.key: loss_space(one) for one in candidates}
        plans = {one.key: one.plan() for one in candidates}
    drawn = {key: draw(space, protocol.trials, key) for key, space in spaces.items()}
    total, done = sum(map(len, drawn.values())), 0
    for key, options in drawn.items():
        results = []
        for option in options:
            value = try_out(dataset, plans[key], option, common, chosen["network"], protocol)
            results.append((value, option))
            chosen["trials"].append({"for": key, **option, "value": value})
            done += 1
            if on_trial is not None:
                on_trial(done, total)
        best = pick(results, common["metric"])
        if how == "paper":
            chosen["network"] = merged(chosen["network"], best.get("network_options", {}))
            rate = {"learning_rate": best["learning_rate"]}
            chosen["by_candidate"] = {one.key: dict(rate) for one in candidates}
        else:
            chosen["by_candidate"][key] = {
                name: value for name, value in best.items() if name != "network_options"
            }
    return chosen


def network_space(network: Mapping[str, Any], is_text: bool) -> list[dict[str, Any]]:
    """Return the networks and learning rates to try for cross entropy."""
    if network.get("name") == "linear":
        return [{"learning_rate": rate} for rate in RATES]
    widths = (128, 256) if is_text else WIDTHS
    return [
        {"learning_rate": rate, "network_options": {"width": width, "dropout": dropout}}
        for rate, width, dropout in itertools.product(RATES, widths, DROPOUTS)
    ]


def loss_space(entry: Candidate) -> list[dict[str, Any]]:
    """Return the learning rates and values of its own parameter to try for an entry."""
    name = entry.loss or ""
    if name in OWN and OWN[name][0] not in entry.options:
        parameter, values = OWN[name]
        return [
            {"learning_rate": rate, "loss_options": {parameter: value}}
            for rate, value in itertools.product(RATES, values)
        ]
    return [{"learning_rate": rate} for rate in RATES]


def draw(space: list[dict[str, Any]], trials: int, key: str) -> list[dict[str, Any]]:
    """Return as many points of a space as there are trials, the same ones every time."""
    if trials >= len(space):
        return space
    return random.Random(f"trials of {key}").sample(space, trials)


def try_out(
    dataset: Dataset,
    choices: Mapping[str, Any],
    option: Mapping[str, Any],
    common: Mapping[str, Any],
    network: Mapping[str, Any],
    protocol: Protocol,
) -> float:
    """Train one model and return its best metric on the validation rows."""
    options = {**choices.get("loss_options", {}), **option.get("loss_options", {})}
    whole = merged(network, option.get("network_options", {}))
    plan = Plan(
        **{**choices, **({"loss_options": options} if choices.get("loss") else {})},
        network=whole.get("name"),
        network_options=whole.get("options", {}),
        valid_fraction=protocol.valid_fraction,
        settings={**common, "learning_rate": option["learning_rate"]},
    )
    prepared = prepare(dataset, plan, find_device(common.get("device", "auto")))
    value = fit(prepared, []).stopping.value[0]
    return float("nan") if value is None else value


def merged(network: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network's name and options with some options changed."""
    return {**network, "options": {**network.get("options", {}), **options}}


def pick(results: list[tuple[float, dict[str, Any]]], metric: str) -> dict[str, Any]:
    """Return the options of the best trial; the first where they tie."""
    sign = 1 if METRICS[metric].direction == "up" else -1
    known = [result for result in results if result[0] == result[0]]
    if not known:
        raise HierlearnError(f"no trial gave a finite {metric}; lower the learning rate")
    return max(known, key=lambda result: sign * result[0])[1]
