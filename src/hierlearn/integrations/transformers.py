"""Hugging Face's Trainer: a loss, a collator of labels, metrics, and a callback for curricula.

The Trainer adds the losses of the k batches that make one step, over all devices, and leaves the
mean to ``compute_loss_func``, which it tells how many labels these batches have together:

    loss of batch i = mean of batch i * n_i / n,    n = n_1 + ... + n_k

A function that ignores n gives a k-fold loss and k-fold gradients. What the Trainer counts are the
entries of ``labels`` other than -100; ``LabelCollator`` marks with it whatever the mean of the loss
leaves out, so that n_i is proportional to what the mean of batch i divides by.
"""

from __future__ import annotations

import warnings
from base64 import b64decode, b64encode
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hierlearn.backbones.torchvision import broken_torchvision
from hierlearn.errors import DataWarning, HierlearnError, LabelError, unknown_name
from hierlearn.hierarchy import LabelSpace
from hierlearn.hierarchy.labels import Labels
from hierlearn.integrations.common import (
    IGNORED,
    UNKNOWN,
    LabelReader,
    curriculum_state,
    load_curriculum_state,
    unchanged,
)
from hierlearn.metrics.measure import METRICS, check_metrics, measure
from hierlearn.training.prepare import reading_link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.hierarchy.labels import UnlabeledDescendants
    from hierlearn.hierarchy.names import Label
    from hierlearn.losses import Loss

broken_torchvision()  # for transformers, wherever it is imported after this
UnknownLabels = Literal["raise", "ignore"]


class TrainerLoss(nn.Module):
    """A loss as ``Trainer(..., compute_loss_func=TrainerLoss(loss))`` calls it.

    While gradients are off, as in an evaluation, the state of a curriculum stays as it is.

    Args:
        loss: a loss with reduction "mean".
        class_names: for labels that are (N,) class indices: the class that each stands for. By
            default labels are (N, C), as ``LabelCollator`` and ``Hierarchy.encode`` make them.

    Example:
        >>> from hierlearn import HCLLoss, Hierarchy
        >>> h = Hierarchy.from_paths(["dog/pug", "cat"])
        >>> compute = TrainerLoss(HCLLoss(h), class_names=["cat", "dog/pug"])
        >>> logits, labels = torch.zeros(4, 3), torch.tensor([0, 1, 1, 0])
        >>> halves = [compute((logits[:2],), labels[:2], 4), compute((logits[2:],), labels[2:], 4)]
        >>> bool(sum(halves) == compute((logits,), labels))
        True
    """

    def __init__(self, loss: Loss, class_names: Sequence[Label] | None = None) -> None:
        super().__init__()
        if loss.reduction != "mean":
            raise HierlearnError(
                f"TrainerLoss needs a loss with reduction 'mean', not {loss.reduction!r}"
            )
        self.loss = loss
        self.reader = LabelReader(loss.label_space, class_names)
        self._device: torch.device | None = None

    def forward(
        self, outputs: Any, labels: Tensor, num_items_in_batch: int | Tensor | None = None
    ) -> Tensor:
        """Return the part of a batch in the loss of a step.

        Args:
            outputs: of the model: ``outputs.logits``, ``outputs["logits"]`` or the first entry is
                (N, C) logits in the hierarchy's order.
            labels: (N,) class indices, or (N, C) closed targets; -100 where nothing is known.
            num_items_in_batch: the number of labels of all batches of the step, on all devices;
                None for one batch.
        """
        logits = logits_of(outputs)
        if self._device != logits.device:  # the Trainer moves its model, but not this module
            self.to(logits.device)
            self._device = logits.device
        targets, mask = self.reader(labels)
        if torch.is_grad_enabled():
            mean: Tensor = self.loss(logits, targets, mask)
        else:
            with unchanged(self.loss):
                mean = self.loss(logits, targets, mask)
        if num_items_in_batch is None:
            return mean
        own = (labels != IGNORED).sum()  # n_i of n, the labels of its step
        if not isinstance(num_items_in_batch, Tensor):
            return mean * (own / num_items_in_batch).to(mean)
        total = num_items_in_batch.to(labels.device)
        # With several GPUs in one process (torch.nn.DataParallel) the Trainer passes one number per
        # GPU and multiplies by how many there are, although outputs and labels are those of all.
        several = 1 if total.dim() == 0 else len(total)
        return mean * (own / total.flatten()[0] / several).to(mean)


def logits_of(outputs: Any) -> Tensor:
    """Return the logits among the outputs of a model."""
    if isinstance(outputs, Tensor):
        return outputs
    found = getattr(outputs, "logits", None)
    if found is None:
        found = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    if not isinstance(found, Tensor):
        raise HierlearnError(f"the outputs hold no logits: {type(outputs).__name__}")
    return found


def counts_unlabeled(loss: Loss) -> bool:
    """Whether a row that has no label counts in the mean of a loss."""
    nothing = torch.zeros(1, len(loss.hierarchy), dtype=torch.bool)
    counted = loss.counted(nothing, torch.ones_like(nothing))
    return counted is None or bool(counted.any())


class LabelCollator:
    """Batch rows whose labels are paths or names of classes, as ``data_collator=`` of the Trainer.

    Args:
        loss: the loss that will read the labels; what its mean leaves out is marked with -100.
        collate: batches what else is in a row, such as ``DataCollatorWithPadding(tokenizer)``; by
            default ``transformers.default_data_collator``.
        column: the key of a row's label, which is a path, a bare name, a list of them, or None.
            The Trainer drops keys that the model does not take, except "label" and "labels",
            unless ``remove_unused_columns=False``.
        unknown: "raise", or "ignore" to leave out rows with a label that is not in the hierarchy.
        unlabeled_descendants: how the classes below a row's most specific labels count.
    """

    def __init__(
        self,
        loss: Loss,
        collate: Callable[[list[Any]], Any] | None = None,
        *,
        column: str = "label",
        unknown: UnknownLabels = "raise",
        unlabeled_descendants: UnlabeledDescendants = "negative",
    ) -> None:
        if unknown not in get_args(UnknownLabels):
            raise HierlearnError(
                unknown_name("value of unknown", str(unknown), get_args(UnknownLabels))
            )
        if collate is None:
            collate = imported("LabelCollator").default_data_collator
        self.hierarchy = loss.hierarchy
        Labels((), self.hierarchy, unlabeled_descendants=unlabeled_descendants)  # check the value
        # The loss itself may live on a GPU, and a collator goes to the workers of a loader.
        self.counts_rows = loss.size(torch.empty(1, len(self.hierarchy))) == 1
        self.counts_unlabeled = counts_unlabeled(loss)
        self.collate = collate
        self.column = column
        self.unknown = unknown
        self.unlabeled_descendants: UnlabeledDescendants = unlabeled_descendants
        self._warned = False

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Return the batch of rows, with (N, C) ``labels``."""
        for number, row in enumerate(rows):
            if self.column not in row:
                raise HierlearnError(
                    f"row {number} of the batch has no {self.column!r}, but {sorted(row)}; pass "
                    f"column=, and remove_unused_columns=False to TrainingArguments if the key is "
                    f"neither 'label' nor 'labels'"
                )
        labels = self.labels([row[self.column] for row in rows])
        others = [{k: v for k, v in row.items() if k != self.column} for row in rows]
        batch = self.collate(others)
        batch["labels"] = labels
        return batch

    def labels(self, rows: Sequence[Label | Sequence[Label] | None]) -> Tensor:
        """Return (N, C) int8: 1, 0, -1 for an unknown entry, -100 for what does not count."""
        known = torch.ones(len(rows), dtype=torch.bool)
        if self.unknown == "ignore":
            known = torch.tensor([not self._has_unknown(row) for row in rows], dtype=torch.bool)
            rows = [row if ok else None for row, ok in zip(rows, known.tolist(), strict=True)]
        found = Labels(rows, self.hierarchy, unlabeled_descendants=self.unlabeled_descendants)
        targets, mask = found.targets(), found.mask() & known[:, None]
        counted = mask
        if self.counts_rows:  # by what is known, or by what is known to apply
            counted = (mask if self.counts_unlabeled else targets & mask).any(dim=1, keepdim=True)
        labels = targets.to(torch.int8).masked_fill_(~mask, UNKNOWN)
        return labels.masked_fill_(~counted, IGNORED)

    def _has_unknown(self, row: Label | Sequence[Label] | None) -> bool:
        """Whether a label of a row is not in the hierarchy; the first one is warned about."""
        several = hasattr(row, "__iter__") and not isinstance(row, str)
        labels: Any = row if several else [row]
        for label in labels:
            if not isinstance(label, str) or not label:
                continue
            try:
                self.hierarchy.resolve(label)
            except LabelError as error:
                if label in self.hierarchy.bare_names:  # ambiguous, not unknown
                    raise
                if not self._warned:
                    self._warned = True
                    warnings.warn(
                        f"{error}; rows with labels that are not in the hierarchy are left out",
                        DataWarning,
                        stacklevel=4,
                    )
                return True
        return False


class TrainerMetrics:
    """Metrics by name, as ``Trainer(..., compute_metrics=TrainerMetrics(loss, names))`` calls them.

    Logits are read as hierlearn's own trainer reads them when it predicts with the loss. Rows
    without any known label are left out.

    Args:
        loss: the loss that the model is trained with.
        metrics: names of METRICS; by default those that are ``shown`` and defined for the rows. A
            metric by level has one entry per level, such as "level-accuracy-1".
        class_names: for labels that are (N,) class indices: the class that each stands for.
    """

    def __init__(
        self,
        loss: Loss,
        metrics: Sequence[str] | None = None,
        class_names: Sequence[Label] | None = None,
    ) -> None:
        self.label_space = loss.label_space
        self.metrics = None if metrics is None else check_metrics(metrics)
        self.reader = LabelReader(loss.label_space, class_names)
        self.link = reading_link(None, loss, loss.label_space).cpu()

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Return the metrics of an ``EvalPrediction``: NumPy logits and labels."""
        predictions, labels = prediction.predictions, torch.as_tensor(prediction.label_ids)
        if isinstance(predictions, (tuple, list)):
            predictions = predictions[0]
        targets, mask = self.reader(labels)
        p = self.link.probabilities(torch.as_tensor(predictions).float())
        if mask is not None:
            targets, known = targets * mask, mask.any(dim=1)
            p, targets = p[known], targets[known]
        found = measure(p, targets, self.label_space, self.metrics)
        return by_name(found)


def by_name(found: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as one number per name, without those that the rows do not define."""
    values: dict[str, float | None] = {}
    for name, value in found.items():
        if METRICS[name].by_level and value is not None:
            values |= {f"{name}-{level}": one for level, one in enumerate(value, start=1)}
        else:
            values[name] = value
    return {name: value for name, value in values.items() if value is not None}


def config_labels(label_space: LabelSpace | Hierarchy) -> dict[str, Any]:
    """Return ``num_labels``, ``id2label`` and ``label2id`` for the configuration of a model.

    Args:
        label_space: what can be predicted, or a Hierarchy.

    Example:
        >>> from hierlearn import Hierarchy
        >>> config_labels(Hierarchy.from_paths(["dog/pug", "cat"]))["id2label"]
        {0: 'cat', 1: 'dog', 2: 'dog/pug'}
    """
    names = LabelSpace.of(label_space).hierarchy.names
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }


def curriculum_callback(loss: Loss | TrainerLoss) -> Any:
    """Return a ``TrainerCallback`` that reports steps and epochs to the curriculum of a loss.

    The state of the curriculum is in the checkpoints of the Trainer, and is restored by
    ``resume_from_checkpoint``. Where the loss selects classes, ``log_history`` has the fraction of
    classes that were selected since the entry before, as "selected".

    Args:
        loss: the loss, or the TrainerLoss made of it.
    """
    made_of: Loss = loss.loss if isinstance(loss, TrainerLoss) else loss
    module = imported("curriculum_callback").trainer_callback

    # Restoring callbacks, the Trainer makes a new one of the same class from what JSON can hold;
    # the loss cannot be among its arguments, so it belongs to the class.
    class CurriculumCallback(module.TrainerCallback, module.ExportableState):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            self.open_steps = 0  # since the end of the last epoch
            self.selected: Tensor | None = None  # the fraction, summed since the last log
            self.steps = 0  # that were summed

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            saved = state.stateful_callbacks.get(type(self).__name__)
            if state.global_step and saved is not None:
                attributes = saved["attributes"]
                self.open_steps = attributes["open_steps"]
                load_curriculum_state(made_of, from_json(attributes["curriculum"]))

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            # A checkpoint after the last step of an epoch was written before the epoch's end.
            if self.open_steps and float(state.epoch).is_integer():
                self.end_epoch()

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            made_of.set_progress(state.global_step / max(state.max_steps, 1))

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.open_steps += 1
            selection = made_of.selection
            if selection is not None:
                fraction = selection.float().mean()
                self.selected = fraction if self.selected is None else self.selected + fraction
                self.steps += 1

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.end_epoch()

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.selected is not None and "loss" in kwargs.get("logs", {}):
                state.log_history[-1]["selected"] = float(self.selected) / self.steps
                self.selected, self.steps = None, 0

        def end_epoch(self) -> None:
            made_of.end_epoch()
            self.open_steps = 0

        def state(self) -> dict[str, Any]:
            found = {"curriculum": to_json(curriculum_state(made_of))}
            return {"args": {}, "attributes": {"open_steps": self.open_steps, **found}}

    return CurriculumCallback()


def to_json(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return tensors as JSON can hold them, exactly: their bytes as text."""
    return {
        name: {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "base64": b64encode(value.cpu().numpy().tobytes()).decode("ascii"),
        }
        for name, value in state.items()
    }


def from_json(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors that ``to_json`` wrote."""
    return {
        name: torch.from_numpy(
            np.frombuffer(b64decode(one["base64"]), dtype=one["dtype"]).reshape(one["shape"]).copy()
        )
        for name, one in state.items()
    }


def imported(what: str) -> Any:
    """Return the package transformers."""
    try:
        return import_module("transformers")
    except ImportError:
        raise HierlearnError(
            f"{what} needs transformers; install it with: pip install transformers accelerate"
        ) from None
