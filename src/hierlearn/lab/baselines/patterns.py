"""Weights that start at what occurs together (Kurata et al., 2016; Baker and Korhonen, 2017).

One unit of the last hidden layer stands for each distinct label set with its ancestors: its weights
to these classes start at c = sqrt(6 / (units + classes)), to others at 0. The most frequent sets
come first; units beyond their number keep their random weights. ``frequent-patterns`` multiplies c
by the square root of a set's frequency, relative to the most frequent one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hierlearn.errors import HierlearnError, arg
from hierlearn.memory.store import LabelSets
from hierlearn.networks.ensemble import networks_in

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from hierlearn.hierarchy.labels import Labels

    Floats = NDArray[np.float64]


def patterns(network: nn.Module, labels: Labels, weights: Floats | None) -> None:
    """Give every label set a hidden unit of its own; an entry of INITIALIZERS."""
    sets, counts = label_patterns(labels, weights)
    set_units(network, sets, torch.ones_like(counts), "patterns")


def frequent_patterns(network: nn.Module, labels: Labels, weights: Floats | None) -> None:
    """Give every label set a hidden unit, with larger weights for frequent ones."""
    sets, counts = label_patterns(labels, weights)
    set_units(network, sets, (counts / counts.max()).sqrt(), "frequent-patterns")


def set_units(network: nn.Module, sets: Tensor, scales: Tensor, name: str) -> None:
    """Set the weights of every linear head after an encoder that learns; raise without any."""
    one: Any
    for one in networks_in(network):
        encoder = getattr(one, "encoder", None)
        learns = encoder is not None and any(True for _ in encoder.parameters())
        heads = one.heads.values() if learns else ()
        if not any([set_patterns(head, sets, scales) for head in heads]):  # noqa: C419
            raise HierlearnError(
                f"{arg('head_init')} {name!r} is for a linear head after a hidden layer, which "
                "this network "
                f"lacks; use {arg('head_init')} 'random'"
            )


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
