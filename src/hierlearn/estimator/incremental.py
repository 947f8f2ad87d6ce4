"""IncrementalState: more steps on new rows, from where a training ended.

One pass over the new rows at a constant learning rate. The preprocessing stays as fitted on the
first rows; the optimizer and an epoch curriculum keep their state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from hierlearn.errors import HierlearnError
from hierlearn.networks.memories import embeddings_of, remembered, set_memory
from hierlearn.pipeline.remember import next_ids
from hierlearn.training.checkpoint import optimizer_tensors, restore_optimizer
from hierlearn.training.prepare import for_heads
from hierlearn.training.recipes import build_loss
from hierlearn.training.rows import Rows
from hierlearn.training.seeding import derive
from hierlearn.training.settings import Settings
from hierlearn.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn
    from typing_extensions import Self

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.losses import Loss
    from hierlearn.losses.joint import JointLoss
    from hierlearn.memory import Remembered
    from hierlearn.pipeline.pipeline import Pipeline
    from hierlearn.training.prepare import Prepared


@dataclass
class IncrementalState:
    """What a training leaves behind for the next rows.

    Attributes:
        loss: what trains the network.
        settings: those of the training.
        optimizer: the state of the optimizer, empty before the first step.
        calls: how often there were new rows.
    """

    loss: Loss | JointLoss
    settings: Settings
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    calls: int = 0

    @classmethod
    def from_training(cls, prepared: Prepared, trainer: Trainer) -> Self:
        """Keep the loss and the optimizer of a training that has ended."""
        tensors = optimizer_tensors(trainer.optimizer)
        return cls(prepared.loss, prepared.decision.settings, tensors)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> Self:
        """Start with a saved pipeline, which holds no state of an optimizer."""
        if "recipe" not in pipeline.config:
            raise HierlearnError("this model does not say which loss trained it; call fit instead")
        recipe = pipeline.config["recipe"]
        settings = Settings.from_dict(pipeline.config["settings"])
        loss = build_loss(recipe["loss"], pipeline.label_space, **recipe["loss_options"])
        return cls(for_heads(loss, pipeline.network), settings)

    def partial_fit(
        self,
        pipeline: Pipeline,
        inputs: Any,
        labels: Labels,
        weights: NDArray[np.float64] | None = None,
    ) -> dict[str, Any]:
        """Take the steps of one pass over new rows, and return its record."""
        if pipeline.preprocessor is not None:
            inputs = pipeline.preprocessor.transform(inputs)
        rows = Rows(inputs, labels, pipeline.device, weights)
        settings = self.settings.with_changes(
            epochs=1,
            schedule="constant",
            warmup=0.0,
            patience=None,
            # Another order of rows and other noise at every call.
            seed=derive(self.settings.seed, "further", self.calls) % 2**31,
        )
        records: list[dict[str, Any]] = []
        before = remembered(pipeline.network)
        held = {} if before is None else embeddings_of(pipeline.network)
        trainer = Trainer(pipeline.network, self.loss, rows, settings, read=pipeline.read)
        trainer.on_epoch = records.append
        if self.optimizer:
            restore_optimizer(trainer.optimizer, self.optimizer)
        trainer.train()
        if before is not None:  # the memory holds the new rows alone
            restore_memory(pipeline.network, held, before)
        self.optimizer = optimizer_tensors(trainer.optimizer)
        self.calls += 1
        return records[0]


def restore_memory(
    network: nn.Module, embeddings: Mapping[str, Tensor], before: Remembered
) -> None:
    """Put the rows that were remembered before in front of those of the last pass."""
    new = remembered(network)
    assert new is not None
    found = embeddings_of(network)
    joined = {
        name: torch.cat([held, found[name].to(held)], dim=-2) for name, held in embeddings.items()
    }
    named = replace(new, ids=next_ids(before.ids, len(new)))
    set_memory(network, joined, before.join(named))
