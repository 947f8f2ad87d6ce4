"""JointLoss: a network with several heads, a loss for each.

l = sum over heads k of w_k l_k(output of head k)
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.losses.mixed import CompositeLoss

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.hierarchy import LabelSpace
    from hierlearn.links import HeadOutput, Link
    from hierlearn.losses.loss import Loss


class JointLoss(CompositeLoss):
    """The weighted sum of the losses of several heads.

    Args:
        losses: the loss of each head, by its name.
        weights: what each counts; by default all the same, 1 together.
    """

    def __init__(
        self, losses: Mapping[str, Loss], weights: Mapping[str, float] | None = None
    ) -> None:
        super().__init__()
        if not losses:
            raise HierlearnError("a joint loss needs at least one head")
        if weights is not None and set(weights) != set(losses):
            raise HierlearnError(f"weights of {sorted(weights)} do not fit heads {sorted(losses)}")
        self.names = list(losses)
        self.parts = nn.ModuleList(losses.values())
        self.entries_independent = all(part.entries_independent for part in losses.values())
        equal = dict.fromkeys(losses, 1.0 / len(losses))
        self.weights = dict(equal if weights is None else weights)

    @property
    def link(self) -> Link:
        """How plain logits of the first head are read."""
        return self.losses_of_parts[0].link

    @property
    def label_space(self) -> LabelSpace:
        """What can be predicted."""
        return self.losses_of_parts[0].label_space

    @classmethod
    def same_for_all(cls, loss: Loss, heads: Sequence[str]) -> JointLoss:
        """Return the loss for every head alike, each with a state of its own."""
        return cls({name: loss if not k else copy.deepcopy(loss) for k, name in enumerate(heads)})

    @classmethod
    def per_row(cls, losses: Mapping[str, Loss], weights: Mapping[str, float]) -> JointLoss:
        """Return a joint loss whose weights are per row, whatever the parts average over.

        A loss of entries averages over N * C of them, a loss of rows over N rows; here each counts
        by its sum over a row.

        Args:
            losses: the loss of each head, by its name.
            weights: what each counts.
        """
        classes = len(next(iter(losses.values())).hierarchy)
        entries = {name: loss.size(torch.empty(1, classes)) for name, loss in losses.items()}
        return cls(losses, {name: weights[name] * entries[name] / classes for name in losses})

    def forward(
        self,
        outputs: Mapping[str, HeadOutput],
        targets: Tensor,
        mask: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted sum over the heads.

        Args:
            outputs: what each head gives, by name.
            targets: (N, C) closed multi-hot.
            mask: (N, C) bool, which targets are known; by default all.
            weight: (N,) how much each row counts; by default 1.
        """
        values = self.terms(outputs, targets, mask, weight)
        return sum(values[1:], start=values[0])

    def terms(
        self,
        outputs: Mapping[str, HeadOutput],
        targets: Tensor,
        mask: Tensor | None,
        weight: Tensor | None,
    ) -> list[Tensor]:
        """Return the weighted loss of each head, whose means divide by ``counts``.

        A loss of entries divides by another number than one of rows, so that processes that share
        a batch must scale each on its own.
        """
        if set(outputs) != set(self.names):
            raise HierlearnError(f"the network has heads {sorted(outputs)}, the loss {self.names}")
        return [
            self.weights[name] * part(outputs[name], targets, mask, weight)
            for name, part in zip(self.names, self.parts, strict=True)
        ]

    def counts(
        self, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> list[int | Tensor]:
        """Return what the mean of each head's loss divides by."""
        return [part.count(targets, mask, weight) for part in self.losses_of_parts]
