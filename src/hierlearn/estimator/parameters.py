"""The parameters of an estimator: from plain values to a Plan, and to JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from hierlearn.errors import HierlearnError
from hierlearn.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTINGS = (  # parameters that are settings under the same name; None leaves them to the recipe
    *(
        "epochs",
        "batch_size",
        "learning_rate",
        "weight_decay",
        "schedule",
        "warmup",
        "max_grad_norm",
    ),
    *("precision", "prior_bias", "metric", "patience", "ensemble_size", "device"),
)


def plan_of(params: Mapping[str, Any]) -> Plan:
    """Return what to train; every value is checked on the way."""
    from sklearn.utils import check_random_state

    settings = {name: as_plain(params[name]) for name in SETTINGS if params[name] is not None}
    seed = params["random_state"]
    if seed is None or isinstance(seed, np.random.RandomState):
        seed = check_random_state(seed).randint(2**31 - 1)
    network = params["network"]
    same = ("recipe", "loss", "link", "decoder", "unlabeled_descendants", "standardize")
    chosen: dict[str, Any] = {name: params[name] for name in same}
    for name in ("loss_options", "network_options", "decoder_options"):
        chosen[name] = dict(params[name] or {})
    return Plan(
        **chosen,
        network=network if isinstance(network, str) else None,
        valid_fraction=0.0 if params["patience"] is None else params["valid_fraction"],
        settings={**settings, "seed": as_plain(seed)},
    )


def storable(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON holds them; a generator of random numbers becomes None."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        found[name] = None if isinstance(value, np.random.RandomState) else as_plain(value)
        try:
            json.dumps(found[name])
        except TypeError as error:
            raise HierlearnError(
                f"the parameter {name} cannot be written as JSON ({error}), so the classifier "
                f"cannot be saved; use plain values, or pickle it"
            ) from None
    return found


def as_plain(value: Any) -> Any:
    """Return Python's own number for one of NumPy's."""
    return value.item() if isinstance(value, np.generic) else value
