"""Head: the base of what turns features into node log-probabilities.

A head needs no logits: whatever returns (log p, log(1 - p)) of every node is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from hierlearn.hierarchy.labels import Labels
    from hierlearn.links.output import HeadOutput


class Head(nn.Module, ABC):
    """Base of the heads: ``forward(features) -> HeadOutput``.

    Attributes:
        stackable: whether several of it can be computed as one, with stacked weights.
        has_memory: whether it compares rows with others that it remembers; ``forward`` then takes
            the features of candidates too, see NeighborHead.
        used_by_loss: whether a loss computes with its weights, outside of ``forward``.
    """

    stackable: ClassVar[bool] = False
    has_memory: ClassVar[bool] = False
    used_by_loss: ClassVar[bool] = False

    @classmethod
    def check_saved(cls, options: Mapping[str, Any]) -> None:
        """Raise on options of a saved head that no training wrote."""

    @property
    def saved_options(self) -> dict[str, Any]:
        """The options that change where a saved head is built again, to be filled with its tensors.

        What an option named a file for is then among the tensors, and the file is not opened.
        """
        return {}

    @abstractmethod
    def forward(self, features: Tensor) -> HeadOutput:
        """Return the node log-probabilities of (N, F) features."""

    def fit_labels(
        self, labels: Labels, weights: NDArray[np.float64] | None, shared: dict[Any, Any]
    ) -> None:
        """Set what the labels of the training rows determine, before training; by default nothing.

        Args:
            labels: of the training rows.
            weights: (N,) how much each row counts; None for all alike.
            shared: what the heads of all members of an ensemble have in common, by a key of theirs.
        """

    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Initialize to the class priors, where the head can.

        Args:
            counts: (C,) the training rows of each class, ancestors counted.
            terminal_counts: (C,) the rows whose most specific label is each class.
            rows: how many rows there are.
        """
