"""Precise: a model in double precision, in which a row's answer hardly depends on its batch.

In single precision a matrix product rounds differently for one row than for many, which moves
probabilities by about 1e-6; in double precision by about 1e-15.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from hierlearn.pipeline.pipeline import Pipeline


class Precise:
    """Makes the copy when it is first asked for; it is never stored.

    Args:
        model: the model; a network from elsewhere stays in its own precision.
    """

    def __init__(self, model: Pipeline) -> None:
        self.single = model

    @cached_property
    def model(self) -> Pipeline:
        """The model in double precision."""
        if not isinstance(self.single.network, Network):
            return self.single
        return replace(self.single, network=copy.deepcopy(self.single.network).double())

    def __getstate__(self) -> dict[str, Any]:
        return {"single": self.single}
