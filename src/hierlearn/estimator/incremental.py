"""IncrementalState: more steps on new rows, from where a training ended.

One pass over the new rows at a constant learning rate. The preprocessing stays as fitted on the
first rows; the optimizer and the loss keep their state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hierlearn.errors import HierlearnError, arg
from hierlearn.networks.ensemble import head_names, heads_of
from hierlearn.networks.sparse_linear import SparseLinearHead
from hierlearn.networks.trees import ForestHead
from hierlearn.training.prepare import for_heads
from hierlearn.training.recipes import build_loss
from hierlearn.training.rows import Rows
from hierlearn.training.seeding import derive
from hierlearn.training.settings import Settings
from hierlearn.training.solvers.gradient import Trainer, optimizer_tensors, restore_optimizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor
    from typing_extensions import Self

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.losses import Loss
    from hierlearn.losses.joint import JointLoss
    from hierlearn.pipeline.pipeline import Pipeline


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
    def from_pipeline(cls, pipeline: Pipeline) -> Self:
        """Start with a saved pipeline, which holds no state of an optimizer."""
        if "recipe" not in pipeline.config:
            raise HierlearnError("this model does not say which loss trained it; call fit instead")
        recipe = pipeline.config["recipe"]
        settings = Settings.from_dict(pipeline.config["settings"])
        loss = build_loss(recipe["loss"], pipeline.label_space, **recipe["loss_options"])
        heads = head_names(pipeline.network)  # joint ones are dropped where the classes change
        weights = {name: w for name, w in recipe.get("joint", {}).items() if name in heads}
        joint = {name: build_loss(name, pipeline.label_space) for name in weights}
        return cls(for_heads(loss, pipeline.network, joint, weights), settings)

    def partial_fit(
        self,
        pipeline: Pipeline,
        inputs: Any,
        labels: Labels,
        weights: NDArray[np.float64] | None = None,
    ) -> dict[str, Any]:
        """Take the steps of one pass over new rows, and return its record.

        Args:
            pipeline: whose network is trained, in place. A memory has the new rows already, as its
                last ones; afterwards it holds their embeddings by the new weights.
            inputs: the raw rows.
            labels: of the rows.
            weights: (N,) how much each row counts; None for all alike.
        """
        if heads_of(pipeline.network, ForestHead):
            raise HierlearnError("trees are grown of all rows at once; call fit, not partial_fit")
        if heads_of(pipeline.network, SparseLinearHead):
            raise HierlearnError(
                "sparse weights are solved on all rows at once; call fit with all of them, or "
                f"train with {arg('head', 'linear')}, which goes on in batches"
            )
        ready = inputs if pipeline.preprocessor is None else pipeline.preprocessor.transform(inputs)
        rows = Rows(ready, labels, pipeline.device, weights)
        settings = replace(
            self.settings,
            epochs=1,
            schedule="constant",
            warmup=0.0,
            patience=None,
            # Another order of rows and other noise at every call.
            seed=derive(self.settings.seed, "further", self.calls) % 2**31,
        )
        records: list[dict[str, Any]] = []
        trainer = Trainer(pipeline.network, self.loss, rows, settings, read=pipeline.read)
        trainer.on_epoch = records.append
        if self.optimizer:
            restore_optimizer(trainer.optimizer, self.optimizer)
        trainer.train()
        self.optimizer = optimizer_tensors(trainer.optimizer)
        self.calls += 1
        return records[0]
