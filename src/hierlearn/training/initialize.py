"""The start of a training: last bias at the class priors, last weights at what occurs together.

    prior      every class has its fraction of the training rows
    patterns   one unit of the last hidden layer per distinct label set with its ancestors; its
               weights to these classes start at c = sqrt(6 / (units + classes)), to others at 0

The second is that of Kurata et al. (2016) and Baker and Korhonen (2017). The most frequent sets
come first; units beyond their number keep their random weights. ``frequent-patterns`` multiplies c
by the square root of a set's frequency, relative to the most frequent one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.errors import HierlearnError
from hierlearn.memory.label_sets import LabelSets
from hierlearn.networks.ensemble import networks_in, set_prior
from hierlearn.training.clems import fit_label_points

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.training.settings import Settings

    Floats = NDArray[np.float64]


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
    fit_label_points(network, labels, weights)
    if settings.prior_bias:
        set_prior(network, *class_counts(labels, weights))
    if settings.head_init == "random":
        return
    patterns, counts = label_patterns(labels, weights)
    scales = torch.ones_like(counts)
    if settings.head_init == "frequent-patterns":
        scales = (counts / counts.max()).sqrt()
    one: Any
    for one in networks_in(network):
        found = [set_patterns(head, patterns, scales) for head in heads_of(one)]
        if not any(found):
            raise HierlearnError(
                f"head_init {settings.head_init!r} is for a linear head after a hidden layer, "
                f"which this network lacks; use head_init 'random'"
            )


def heads_of(network: nn.Module) -> list[Any]:
    """Return the heads after an encoder that learns."""
    encoder = getattr(network, "encoder", None)
    if encoder is None or not any(True for _ in encoder.parameters()):
        return []
    return list(network.heads.values())  # type: ignore[operator]


@torch.no_grad()
def set_patterns(head: Any, patterns: Tensor, scales: Tensor) -> bool:
    """Give every label set a unit before a linear head; return whether it is one.

    Args:
        head: of one network, or of stacked members, who all get the same weights.
        patterns: (P, C) bool.
        scales: (P,) what c is multiplied by.
    """
    layer = getattr(head, "linear", None)
    if layer is None or layer.weight.shape[-1] != patterns.shape[1]:
        return False
    units, classes = layer.weight.shape[-2:]
    used = min(units, len(patterns))
    rows = patterns[:used] * scales[:used, None] * (6 / (units + classes)) ** 0.5
    layer.weight[..., :used, :] = rows.to(layer.weight)
    return True


def label_patterns(labels: Labels, weights: Floats | None) -> tuple[Tensor, Tensor]:
    """Return the (P, C) distinct closed label sets, the most frequent first, and their counts."""
    sets = LabelSets.from_labels(labels)
    counts = np.bincount(sets.of_row, weights, len(sets.sets)).astype(np.float64)
    order = np.argsort(-counts, kind="stable")
    return sets.sets.targets(order), torch.from_numpy(counts[order])


def class_counts(labels: Labels, weights: Floats | None) -> tuple[Tensor, Tensor, int]:
    """Return the weighted rows of each class, (C,) closed and (C,) most specific, and N."""
    found = labels.weighted_counts(None if weights is None else weights / weights.mean())
    closed, terminal = (torch.from_numpy(one).double() for one in found)
    return closed, terminal, len(labels)
