"""Heads: features become node log-probabilities.

    LinearHead   logits = features W + b, read by a link

A head needs no logits: whatever returns (log p, log(1 - p)) of every node is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from hierlearn.links import HeadOutput, make_link
from hierlearn.networks.layers import Dense
from hierlearn.networks.sparse import SparseRows

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link


class Head(nn.Module, ABC):
    """Base of the heads: ``forward(features) -> HeadOutput``.

    Attributes:
        stackable: whether several of it can be computed as one, with stacked weights.
    """

    stackable: ClassVar[bool] = False

    @abstractmethod
    def forward(self, features: Tensor) -> HeadOutput:
        """Return the node log-probabilities of (N, F) features."""

    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Initialize to the class priors, where the head can.

        Args:
            counts: (C,) the training rows of each class, ancestors counted.
            terminal_counts: (C,) the rows whose most specific label is each class.
            rows: how many rows there are.
        """


class LinearHead(Head):
    """A linear layer and a link.

    Args:
        features: F, the width of the features.
        label_space: what can be predicted, or a Hierarchy.
        link: a name of LINKS or a Link.
    """

    stackable = True

    def __init__(
        self, features: int, label_space: LabelSpace | Hierarchy, link: str | Link = "sigmoid"
    ) -> None:
        super().__init__()
        self.link = make_link(label_space, link)
        self.linear = Dense(features, len(self.link.hierarchy))

    def forward(self, features: Tensor | SparseRows) -> HeadOutput:
        """Return the logits with their link."""
        if isinstance(features, SparseRows):
            return HeadOutput.from_logits(features.times(self.linear), self.link)
        logits = self.linear(features)
        return HeadOutput.from_logits(logits, self.link)

    @torch.no_grad()
    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Set the bias to the logits under which every class has its fraction of the rows."""
        prior = self.link.prior_logits(counts, terminal_counts, rows)
        self.linear.bias.copy_(prior.to(self.linear.bias).expand_as(self.linear.bias))
