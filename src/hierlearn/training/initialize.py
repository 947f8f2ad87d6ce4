"""The start of a training: what heads take from the labels, class priors, and the last weights.

``INITIALIZERS`` maps a name to a function ``(network, labels, weights)`` that sets the last weights
of a network or an ensemble; "random" leaves them as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hierlearn.networks.ensemble import networks_in, set_prior
from hierlearn.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.training.settings import Settings

    Floats = NDArray[np.float64]
    Initializer = Callable[[nn.Module, Labels, Floats | None], None]

BUILT_IN: dict[str, Initializer] = {"random": lambda network, labels, weights: None}  # noqa: ARG005
INITIALIZERS = Registry(
    "initializer",
    BUILT_IN,
    group="hierlearn.initializers",
    expected="a function of a network, labels and weights",
    read=lambda _, value: value if callable(value) else None,
)


def initialize(
    network: nn.Module, labels: Labels, weights: Floats | None, settings: Settings
) -> None:
    """Initialize the heads of a network as the settings say.

    Args:
        network: a network or an ensemble.
        labels: of the training rows.
        weights: (N,) how much each row counts; None for all alike.
        settings: ``prior_bias`` and ``head_init``.
    """
    one: Any
    shared: dict[Any, Any] = {}
    for one in networks_in(network):
        for head in getattr(one, "heads", {}).values():
            if hasattr(head, "fit_labels"):
                head.fit_labels(labels, weights, shared)
    if settings.prior_bias:
        found = labels.weighted_counts(None if weights is None else weights / weights.mean())
        closed, terminal = (torch.from_numpy(one).double() for one in found)
        set_prior(network, closed, terminal, len(labels))
    INITIALIZERS[settings.head_init](network, labels, weights)
