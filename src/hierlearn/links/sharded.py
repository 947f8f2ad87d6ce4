"""Links of which this process computes one shard: (N, S) logits of its classes.

Sigmoid and conditional look at a class and its ancestors, all of which are in its shard. The max
link takes maxima over all shards. The softmax link gives every stand-in the logsumexp of the logits
of its terminal classes: the softmax over a shard with stand-ins is then that of the whole.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy.propagate import select
from hierlearn.links.conditional import ConditionalLink
from hierlearn.links.link import Link
from hierlearn.links.max import MaxLink
from hierlearn.links.sigmoid import SigmoidLink
from hierlearn.links.softmax import SoftmaxLink

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy.sharded import ShardedHierarchy

LOCAL = (SigmoidLink, ConditionalLink)


class ShardedSoftmaxLink(Link):
    """The softmax over the terminal classes of all shards.

    Args:
        hierarchy: the classes of this process.
    """

    coherent = True
    normalized = True
    is_terminal: Tensor

    def __init__(self, hierarchy: ShardedHierarchy) -> None:
        super().__init__(hierarchy.extended)
        shard = hierarchy.shard
        flags = shard.shards.label_space.is_terminal[shard.classes]
        self.register_buffer("is_terminal", torch.tensor(flags), persistent=False)
        self.inner, self.sharded = SoftmaxLink(hierarchy.extended), hierarchy

    def log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log of the mass inside and outside every class of the shard."""
        pair = self.inner.log_probabilities(self.extend(logits))
        return select(pair[0], self.sharded.columns), select(pair[1], self.sharded.columns)

    def log_masses(self, logits: Tensor) -> Tensor:
        """Return the log mass of each terminal class of the shard, LOG_ZERO for the others."""
        return select(self.inner.log_masses(self.extend(logits)), self.sharded.columns)

    def extend(self, logits: Tensor) -> Tensor:
        """Return the logits with those of the stand-ins."""
        return self.sharded.extend(logits, "logsumexp", self.is_terminal)


def check_link(link: Link) -> None:
    """Raise on a link that cannot be computed in shards."""
    if type(link) not in (*LOCAL, MaxLink, SoftmaxLink):
        raise HierlearnError(
            f"{type(link).__name__} cannot be computed in shards of classes; use the link sigmoid, "
            f"softmax, conditional or max, or parallel ddp"
        )


def sharded_link(link: Link, hierarchy: ShardedHierarchy) -> Link:
    """Return what a link of the whole label space is in one shard."""
    check_link(link)
    if type(link) is SoftmaxLink:
        return ShardedSoftmaxLink(hierarchy)
    new = copy.copy(link)
    new._modules = {}
    new.hierarchy = hierarchy.local
    if type(link) is MaxLink:
        new.hierarchy = hierarchy  # type: ignore[assignment]
    return new
