"""Batches: which rows each step of an epoch takes: all of them, or those of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.training.processes import Processes


class Batches(Protocol):
    """The batches of an epoch; the number of a batch counts from 0."""

    def whole(self, place: int) -> Tensor:
        """Return (M, n) the rows of a batch, for each of M members."""
        ...

    def share(self, place: int) -> Tensor:
        """Return (M, n) those rows of a batch that this process computes."""
        ...


class OrderedBatches:
    """The batches of an order of all rows; each process takes every so many-th row.

    Args:
        order: (M, N) the order of each member.
        size: the rows of a batch.
        here: this process among all of them.
    """

    def __init__(self, order: Tensor, size: int, here: Processes) -> None:
        self.order, self.size, self.here = order, size, here

    def whole(self, place: int) -> Tensor:
        """Return (M, n) the rows of a batch, for each of M members."""
        return self.order[:, place * self.size : (place + 1) * self.size]

    def share(self, place: int) -> Tensor:
        """Return (M, n) those rows of a batch that this process computes."""
        return self.here.share(self.whole(place))
