"""Loss: what every loss has in common. Checks, masks and the one place of reduction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.links.link import as_float

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import Link

Reduction = Literal["mean", "sum", "none"]


class Loss(nn.Module, ABC):
    """Base of the losses: ``forward(logits, targets, mask=None)``.

    Args:
        hierarchy: the taxonomy; it comes first everywhere.
        reduction: "mean" over the known entries (or labeled rows), "sum" or "none".
        validate: check the values of targets at every call; off in the hot path, as it makes the
            host wait for the device.
    """

    link: Link  # how to read the logits that this loss trains
    per_row = True  # whether the loss of a row depends on that row alone

    def __init__(
        self, hierarchy: Hierarchy, *, reduction: Reduction = "mean", validate: bool = False
    ) -> None:
        super().__init__()
        if reduction not in get_args(Reduction):
            raise HierlearnError(unknown_name("reduction", str(reduction), get_args(Reduction)))
        self.hierarchy = hierarchy
        self.reduction = reduction
        self.validate = validate

    def forward(self, logits: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the loss of a batch.

        Args:
            logits: (N, C) raw scores in the hierarchy's order.
            targets: (N, C) closed multi-hot, bool or numbers.
            mask: (N, C) bool, which targets are known; by default all.
        """
        logits = as_float(logits, len(self.hierarchy))
        check_targets(logits, targets, mask)
        if self.validate:
            check_values(self.hierarchy, targets, mask)
        return self.compute(logits, targets, mask)

    @abstractmethod
    def compute(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Do the work of ``forward`` on tensors that are known to fit."""

    def count(self, targets: Tensor, mask: Tensor | None) -> int | Tensor:
        """Return what the mean of a batch divides by: the known entries, or the labeled rows."""
        return targets.numel() if mask is None else mask.sum()

    def reduce(self, losses: Tensor, known: Tensor | None) -> Tensor:
        """Reduce losses, 0 where unknown, to what was asked for."""
        if self.reduction == "none":
            return losses
        if self.reduction == "sum":
            return losses.sum()
        count = losses.numel() if known is None else known.sum()
        return losses.sum() / (max(count, 1) if isinstance(count, int) else count.clamp_min(1))

    @contextmanager
    def unreduced(self) -> Iterator[None]:
        """Let this loss and its parts give a value an entry, or a row, for a while."""
        parts = [part for part in self.modules() if isinstance(part, Loss)]
        before = [part.reduction for part in parts]
        try:
            for part in parts:
                part.reduction = "none"
            yield
        finally:
            for part, reduction in zip(parts, before, strict=True):
                part.reduction = reduction

    def extra_repr(self) -> str:
        """Name the hierarchy and the reduction when the module is printed."""
        return f"{self.hierarchy!r}, reduction={self.reduction!r}"


class ElementwiseLoss(Loss):
    """A loss of every entry alone: subclasses give (N, C) and the rest happens here."""

    @abstractmethod
    def losses(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the (N, C) losses; unknown entries are ignored."""

    def compute(self, logits: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Mask and reduce the elementwise losses."""
        losses = self.losses(logits, targets, mask)
        if mask is not None:
            losses = torch.where(mask, losses, torch.zeros_like(losses))
        return self.reduce(losses, mask)


class RowLoss(Loss):
    """A loss of every row; the mean is over the rows with a label.

    Args:
        hierarchy: the taxonomy; a tree, unless the subclass takes DAGs.
        reduction: "mean" over labeled rows, "sum" or "none".
        validate: check the values of targets at every call.
    """

    needs_tree = True
    child_ids: Tensor
    parent_ids: Tensor

    def __init__(
        self, hierarchy: Hierarchy, *, reduction: Reduction = "mean", validate: bool = False
    ) -> None:
        super().__init__(hierarchy, reduction=reduction, validate=validate)
        if self.needs_tree and not hierarchy.is_tree:
            raise HierlearnError(
                f"{type(self).__name__} needs a tree, but a class of this DAG has several parents; "
                f"use bce, hcl, mcloss or leaf-ce"
            )
        structure = hierarchy.structure
        for name, numbers in (
            ("child_ids", structure.edge_children),
            ("parent_ids", structure.parent_ids),
        ):
            self.register_buffer(name, torch.tensor(numbers), persistent=False)

    def count(self, targets: Tensor, mask: Tensor | None) -> int | Tensor:
        """Return the number of rows with a label."""
        positive = targets > 0 if mask is None else (targets > 0) & mask
        return positive.any(dim=1).sum()

    def sum_of_children(self, values: Tensor) -> Tensor:
        """Return (N, C) the sum over the children of each class."""
        below = values.index_select(1, self.child_ids)
        return torch.zeros_like(values).index_add(1, self.parent_ids, below)


def check_targets(logits: Tensor, targets: Tensor, mask: Tensor | None) -> None:
    """Refuse shapes that do not match."""
    if targets.shape != logits.shape:
        raise HierlearnError(
            f"targets {tuple(targets.shape)} must match logits {tuple(logits.shape)}"
        )
    if mask is not None:
        if mask.shape != logits.shape:
            raise HierlearnError(
                f"mask {tuple(mask.shape)} must match logits {tuple(logits.shape)}"
            )
        if mask.dtype != torch.bool:
            raise HierlearnError(f"mask must be bool, not {mask.dtype}")


def check_values(hierarchy: Hierarchy, targets: Tensor, mask: Tensor | None) -> None:
    """Refuse targets outside [0, 1], and known targets that exceed a known parent's."""
    values = targets.to(torch.float32)
    known = torch.ones_like(values, dtype=torch.bool) if mask is None else mask
    outside = known & ~((values >= 0) & (values <= 1))
    if outside.any():
        row, number = (int(i) for i in outside.nonzero()[0])
        raise HierlearnError(
            f"row {row}: the target of {hierarchy.names[number]!r} is "
            f"{targets[row, number].item()}, outside [0, 1]"
        )
    child = torch.tensor(hierarchy.structure.edge_children, device=targets.device)
    parent = torch.tensor(hierarchy.structure.parent_ids, device=targets.device)
    open_ = (values[:, child] > values[:, parent]) & known[:, child] & known[:, parent]
    if open_.any():
        row, edge = (int(i) for i in open_.nonzero()[0])
        below, above = (hierarchy.names[int(end[edge])] for end in (child, parent))
        raise HierlearnError(
            f"row {row}: targets are not closed: {below!r} is positive but its parent {above!r} "
            f"is not; make targets with Hierarchy.encode"
        )
