"""Heads: features become node log-probabilities.

    LinearHead        logits = features W + b, read by a link
    SparseLinearHead  linear SVMs, solved at once, see sparse_linear.py
    NeighborHead      the labels of similar training rows, see memory/

``HEADS`` maps a name to a factory ``(features, label_space, **options) -> Head``.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.links import Head, HeadOutput, make_link
from hierlearn.memory import NeighborHead
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.layers import Dense, check_size
from hierlearn.networks.sparse_linear import SPARSE_LINEAR, SparseLinearHead
from hierlearn.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link


class LinearHead(Head):
    """A linear layer and a link.

    Args:
        features: F, the width of the features.
        label_space: what can be predicted, or a Hierarchy.
        link: a name of LINKS or a Link.
        reading_link: another link by which the head reads its logits when it predicts; it then
            returns log-probabilities alone.
    """

    stackable = True

    def __init__(
        self,
        features: int,
        label_space: LabelSpace | Hierarchy,
        link: str | Link = "sigmoid",
        reading_link: str | Link | None = None,
    ) -> None:
        super().__init__()
        self.link = make_link(label_space, link)
        self.reading_link = None if reading_link is None else make_link(label_space, reading_link)
        self.linear = Dense(features, len(self.link.hierarchy))
        self.features = features

    def forward(self, features: Tensor | SparseRows) -> HeadOutput:
        """Return the logits with their link."""
        if isinstance(features, SparseRows):
            logits = features.times(self.linear)
        else:
            logits = self.linear(features)
        if self.reading_link is None or self.training:
            return HeadOutput.from_logits(logits, self.link)
        return HeadOutput(*HeadOutput.from_logits(logits, self.reading_link).pair)

    @torch.no_grad()
    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Set the bias to the logits under which every class has its fraction of the rows."""
        prior = self.link.prior_logits(counts, terminal_counts, rows)
        self.linear.bias.copy_(prior.to(self.linear.bias).expand_as(self.linear.bias))


class Projection(nn.Module):
    """A linear map of dense or sparse features.

    Args:
        features: F, the width of the features.
        size: D, the width of an embedding.
        bias: whether to learn a bias. Differences of embeddings do not depend on it: its gradient
            would be nothing but rounding errors, which AdamW scales up to whole steps.

    Attributes:
        size: D.
    """

    stackable = True

    def __init__(self, features: int, size: int, *, bias: bool = False) -> None:
        super().__init__()
        self.linear = Dense(features, size, bias=bias)
        self.size = size

    def forward(self, features: Tensor | SparseRows) -> Tensor:
        """Return (N, size) embeddings."""
        if isinstance(features, SparseRows):
            return features.times(self.linear)
        found: Tensor = self.linear(features)
        return found


class Unprojected(nn.Module):
    """Features as they are.

    Args:
        size: F, their width.
    """

    stackable = True

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, features: Tensor | SparseRows) -> Tensor:
        """Return dense features."""
        return features.dense() if isinstance(features, SparseRows) else features


NEIGHBOR_METRICS = Registry[Any](
    "metric",
    {"plain": NeighborHead},
    group="hierlearn.neighbor_metrics",
    expected="a subclass of hierlearn.memory.NeighborHead",
    read=lambda _, value: value if isinstance(value, type) else None,
)


def neighbor_head(
    features: int,
    label_space: LabelSpace | Hierarchy,
    *,
    size: int | None = 256,
    metric: str = "plain",
    **options: Any,
) -> NeighborHead:
    """Return a NeighborHead with a linear projection, or without any.

    Args:
        features: F, the width of the features.
        label_space: what can be predicted, or a Hierarchy.
        size: D, the width of an embedding; None compares the features themselves.
        metric: a name of NEIGHBOR_METRICS; "plain" is one distance for all.
        options: of NeighborHead.
    """
    if metric not in NEIGHBOR_METRICS:
        raise NEIGHBOR_METRICS.unknown(metric)
    head: type[NeighborHead] = NEIGHBOR_METRICS[metric]
    if size is None:
        return head(label_space, Unprojected(features), **options)
    check_size(size=size)
    bias = options.get("distance") == "cosine"  # the others see differences of embeddings alone
    return head(label_space, Projection(features, size, bias=bias), **options)


BUILT_IN: dict[str, Callable[..., Head]] = {
    "linear": LinearHead,
    SPARSE_LINEAR: SparseLinearHead,
    "neighbors": neighbor_head,
}
HEADS = Registry(
    "head",
    BUILT_IN,
    group="hierlearn.heads",
    expected="a factory, which is callable",
    read=lambda _, value: value if callable(value) else None,
)


def head_options(kind: str) -> list[str]:
    """Return the options that a head of HEADS takes."""
    taken = [*signature(HEADS[kind]).parameters][2:]
    if "options" in taken:  # of NeighborHead, after label_space and projection
        taken = [*taken[:-1], *[*signature(NeighborHead).parameters][2:]]
    return taken


def make_head(kind: str, features: int, label_space: LabelSpace, **options: Any) -> Head:
    """Return a head by name; raise on an option that it does not take."""
    known = head_options(kind)
    for option in options:
        if option not in known:
            raise HierlearnError(unknown_name(f"option of head {kind}", option, known))
    try:
        return HEADS[kind](features, label_space, **options)
    except TypeError as error:
        raise HierlearnError(f"head {kind} cannot be made with {options} ({error})") from None
