"""Predictor: a pipeline in double precision, where a row's answer hardly depends on its batch.

In single precision a matmul rounds differently for one row than for many, which moves
probabilities by about 1e-6; in double precision by about 1e-15.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hierlearn.networks.ensemble import is_native

if TYPE_CHECKING:
    from hierlearn.pipeline.pipeline import Pipeline


class Predictor:
    """Holds a pipeline and, from the first prediction on, its float64 copy, which is not pickled.

    Args:
        pipeline: the pipeline; a network with foreign parts keeps its precision.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    @cached_property
    def as_float64(self) -> Pipeline:
        """The pipeline in double precision."""
        if not is_native(self.pipeline.network):
            return self.pipeline
        return replace(self.pipeline, network=copy.deepcopy(self.pipeline.network).double())

    def __getstate__(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline}
