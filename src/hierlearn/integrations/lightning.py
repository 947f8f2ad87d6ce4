"""Lightning: a mix-in with the steps of a LightningModule, and a callback for curricula.

    class Classifier(HierarchicalMixin, LightningModule):
        def __init__(self, hierarchy):
            super().__init__()
            self.network = ...
            self.set_loss(HCLLoss(hierarchy), metrics=["leaf-accuracy", "hier-f1"])

        def forward(self, x): ...
        def configure_optimizers(self): ...

The mix-in adds the callback by itself; in a module of your own, pass it to the Trainer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from hierlearn.backbones.torchvision import broken_torchvision
from hierlearn.decoding.probabilities import terminal_scores
from hierlearn.errors import HierlearnError
from hierlearn.integrations.common import (
    LabelReader,
    curriculum_state,
    load_curriculum_state,
    unchanged,
)
from hierlearn.metrics.measure import METRICS, check_metrics, check_supported
from hierlearn.networks.network import read_output
from hierlearn.training.prepare import reading_link

broken_torchvision()
try:
    from lightning.pytorch import Callback
except ImportError:
    raise ImportError(
        "hierlearn.integrations.lightning needs lightning; install it with: pip install lightning"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.hierarchy.names import Label
    from hierlearn.losses import Loss

USUAL = ("leaf-accuracy", "level-accuracy")


class Evaluation(nn.Module):
    """Metrics of batches, read as hierlearn's own trainer reads outputs when it predicts.

    Args:
        loss: the loss that the network is trained with.
        metrics: names of METRICS.
    """

    def __init__(self, loss: Loss, metrics: Sequence[str]) -> None:
        super().__init__()
        self.label_space = loss.label_space
        self.link = reading_link(None, loss, loss.label_space)
        for name in check_metrics(metrics):
            if METRICS[name].of_answers:
                raise HierlearnError(
                    f"metric {name!r} is about what a decoder answers, and here are probabilities; "
                    f"choose a metric of these, such as 'hit@1' or 'au-prc'"
                )
            check_supported(METRICS[name], self.label_space)
        self.metrics = nn.ModuleDict(
            {name: METRICS[name].module(self.label_space) for name in metrics}
        )

    def probabilities(self, output: Any) -> Tensor:
        """Return (N, C) probabilities of logits, or of what heads of hierlearn return."""
        return read_output(output, self.link).probabilities

    def update(self, output: Any, targets: Tensor, mask: Tensor | None) -> None:
        """Add a batch; rows without any known label are left out."""
        p = self.probabilities(output)
        if mask is not None:
            known = mask.any(dim=1)
            p, targets = p[known], (targets * mask)[known]
        if not len(p):
            return
        for name, metric in self.metrics.items():
            scores = terminal_scores(p, self.label_space) if METRICS[name].of_terminals else p
            metric.update(scores, targets)  # type: ignore[operator]

    def compute(self) -> dict[str, Tensor]:
        """Return one number per name, and one per level such as "level-accuracy-1"; start again."""
        found: dict[str, Tensor] = {}
        for name, metric in self.metrics.items():
            value = metric.compute().float()  # type: ignore[operator]
            if METRICS[name].by_level:
                found |= {f"{name}-{level}": one for level, one in enumerate(value, start=1)}
            else:
                found[name] = value
            metric.reset()  # type: ignore[operator]
        return found


class HierarchicalMixin:
    """Steps of a LightningModule: mix it in before ``LightningModule`` and call ``set_loss``.

    ``forward`` returns (N, C) logits in the hierarchy's order, or what a head of hierlearn returns.
    ``train_loss``, ``valid_loss``, ``test_loss`` and the metrics, as "valid_leaf-accuracy", are
    logged. The curriculum of the loss is reported to by a ``CurriculumCallback``, which
    ``configure_callbacks`` adds. Whatever differs is overridden.
    """

    loss: Loss
    evaluation: Evaluation
    reader: LabelReader
    if TYPE_CHECKING:
        log: Any
        log_dict: Any
        __call__: Any

    def set_loss(
        self,
        loss: Loss,
        *,
        metrics: Sequence[str] = USUAL,
        class_names: Sequence[Label] | None = None,
    ) -> None:
        """Set what is minimized and measured, in ``__init__`` after ``super().__init__()``.

        Args:
            loss: a loss with reduction "mean".
            metrics: names of METRICS, measured in validation and test.
            class_names: for labels that are (N,) class indices: the class that each stands for.
        """
        if loss.reduction != "mean":
            raise HierlearnError(
                f"a LightningModule needs a loss with reduction 'mean', not {loss.reduction!r}"
            )
        self.loss = loss
        self.evaluation = Evaluation(loss, metrics)
        self.reader = LabelReader(loss.label_space, class_names)

    def unpack(self, batch: Any) -> tuple[Any, Tensor]:
        """Return the inputs and the labels of a batch; override it for batches of another form.

        Labels are (N, C) closed targets, -100 where an entry is unknown, or (N,) class indices.
        """
        try:
            inputs, labels = batch
        except (TypeError, ValueError):
            raise HierlearnError(
                f"a batch must be a pair of inputs and labels, not {type(batch).__name__}; "
                f"override unpack(batch) to return both"
            ) from None
        return inputs, labels

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        inputs, labels = self.unpack(batch)
        value: Tensor = self.loss(self(inputs), *self.reader(labels))
        self.log("train_loss", value, batch_size=len(labels))
        return value

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Measure a batch."""
        self.evaluation_step(batch, "valid")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Measure a batch."""
        self.evaluation_step(batch, "test")

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return (N, C) probabilities of a batch of inputs."""
        return self.evaluation.probabilities(self(batch))

    def evaluation_step(self, batch: Any, part: str) -> None:
        """Log the loss of a batch and add it to the metrics; the curriculum stays as it is."""
        inputs, labels = self.unpack(batch)
        output, (targets, mask) = self(inputs), self.reader(labels)
        with unchanged(self.loss):
            value = self.loss(output, targets, mask)
        self.log(f"{part}_loss", value, batch_size=len(labels), on_epoch=True, sync_dist=True)
        self.evaluation.update(output, targets, mask)

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the validation rows."""
        self.log_dict({f"valid_{k}": v for k, v in self.evaluation.compute().items()})

    def on_test_epoch_end(self) -> None:
        """Log the metrics of the test rows."""
        self.log_dict({f"test_{k}": v for k, v in self.evaluation.compute().items()})

    def configure_callbacks(self) -> list[Callback]:
        """Return a callback for the curriculum."""
        return [CurriculumCallback()]


class CurriculumCallback(Callback):  # type: ignore[misc]
    """Report steps and epochs to the curriculum of a loss, whose state is in checkpoints.

    Where the loss selects classes, the fraction of classes that were selected in an epoch is logged
    as "selected".

    Args:
        loss: the loss; by default the attribute ``loss`` of the module.
    """

    def __init__(self, loss: Loss | None = None) -> None:
        self.loss = loss
        self.open_steps = 0  # since the end of the last epoch
        self.total: float = math.inf  # steps of the training

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Find the loss."""
        if self.loss is None:
            self.loss = getattr(pl_module, "loss", None)
        if not hasattr(self.loss, "end_epoch"):
            raise HierlearnError(
                f"{type(pl_module).__name__} has no loss of hierlearn as its attribute 'loss'; "
                f"pass it as CurriculumCallback(loss)"
            )

    @property
    def _loss(self) -> Loss:
        assert self.loss is not None  # since setup
        return self.loss

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Count the steps of the training."""
        self.total = trainer.estimated_stepping_batches

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report the progress."""
        if batch_idx == 0 and self.open_steps:
            self._end_epoch()  # resumed from a checkpoint between its last step and its end
        self._loss.set_progress(min(trainer.global_step / self.total, 1.0))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log what was selected."""
        self.open_steps += 1
        selection = self._loss.selection
        if selection is not None:
            fraction = selection.float().mean()
            pl_module.log("selected", fraction, on_step=False, on_epoch=True, batch_size=1)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Close the epoch."""
        self._end_epoch()

    def _end_epoch(self) -> None:
        self._loss.end_epoch()
        self.open_steps = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the curriculum."""
        return {"open_steps": self.open_steps, "curriculum": curriculum_state(self._loss)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the state of the curriculum."""
        self.open_steps = state_dict["open_steps"]
        load_curriculum_state(self._loss, state_dict["curriculum"])
