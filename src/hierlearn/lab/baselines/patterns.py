"""Weights that start at what occurs together (Kurata et al., 2016; Baker and Korhonen, 2017).

One unit of the last hidden layer stands for each distinct label set with its ancestors: its weights
to these classes start at c = sqrt(6 / (units + classes)), to others at 0. The most frequent sets
come first; units beyond their number keep their random weights.
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
    from torch import nn

    from hierlearn.hierarchy.labels import Labels


@torch.no_grad()
def patterns(network: nn.Module, labels: Labels, weights: NDArray[np.float64] | None) -> None:
    """Give every label set a hidden unit of its own; an entry of INITIALIZERS."""
    sets = LabelSets.from_labels(labels)
    counts = np.bincount(sets.of_row, weights, len(sets.sets)).astype(np.float64)
    targets = sets.sets.targets(np.argsort(-counts, kind="stable"))  # (P, C)
    one: Any
    for one in networks_in(network):
        encoder = getattr(one, "encoder", None)
        learns = encoder is not None and any(True for _ in encoder.parameters())
        heads = one.heads.values() if learns else ()
        linear = [getattr(head, "linear", None) for head in heads]
        layers = [x for x in linear if x is not None and x.weight.shape[-1] == targets.shape[1]]
        if not layers:
            raise HierlearnError(
                f"{arg('head_init')} 'patterns' is for a linear head after a hidden layer, which "
                f"this network lacks; use {arg('head_init')} 'random'"
            )
        for layer in layers:  # stacked members all get the same weights
            units, classes = layer.weight.shape[-2:]
            rows = targets[:units] * (6 / (units + classes)) ** 0.5
            layer.weight[..., : len(rows), :] = rows.to(layer.weight)
