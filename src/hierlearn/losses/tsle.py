"""The loss of TSLE: labels are ranked, and a row is nearest to the encoding of its own labels.

    rank(s)   = mean over pairs of a label p and another class n of max(0, 1 - s_p + s_n)
                + calibration * mean over the classes of bce(s)
    match(i)  = mean over rows j with other labels of max(0, margin - e_i . l_i + e_i . l_j)
    l(i)      = rank(decode(e_i)) + rank(decode(l_i)) + weight * match(i)

e are the encodings of rows and l those of their labels, of length 1, as the network ``tsle``
returns them; see networks/tsle.py. Plain logits, and the outputs of other networks, have no
encodings: then l(i) = rank(s). After Chen et al., "Two-stage label embedding via neural
factorization machine for multi-label classification" (2019).

Ranking alone leaves the scores of a row free up to a constant. The second part of rank compares
every class with a virtual one of score 0, as in calibrated label ranking (Fürnkranz et al., 2008);
with the logistic loss for these pairs it is binary cross entropy, so a sigmoid reads the scores.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch

from hierlearn.errors import HierlearnError
from hierlearn.links import HeadOutput
from hierlearn.losses.bases import bce_loss
from hierlearn.losses.devise import pairwise_hinge
from hierlearn.losses.loss import RowLoss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link
    from hierlearn.losses.loss import WeightedOptions

RANK_MARGIN = 1.0  # by which the score of a label should exceed others


class LabelCoder(Protocol):
    """What the loss asks of a network; its weights are trained like any other."""

    def encode_labels(self, targets: Tensor) -> Tensor:
        """Return (N, K) the encodings of (N, C) label sets, of length 1."""

    def decode(self, encodings: Tensor) -> HeadOutput:
        """Return the output of (N, K) encodings."""


class EncodedOutput(HeadOutput):
    """The output of a head with the encodings of its rows, and what encodes their labels.

    Attributes:
        encodings: (N, K), or (M, N, K) of the M members of an ensemble, of length 1.
        coder: encodes labels and decodes encodings.
    """

    encodings: Tensor
    coder: LabelCoder

    @classmethod
    def of(cls, logits: Tensor, link: Link, encodings: Tensor, coder: LabelCoder) -> EncodedOutput:
        """Return the output of logits with encodings."""
        new = cls.from_logits(logits, link)
        assert isinstance(new, EncodedOutput)
        new.encodings, new.coder = encodings, coder
        return new


def rank_loss(
    pair: tuple[Tensor, Tensor],
    targets: Tensor,
    mask: Tensor | None = None,
    calibration: float = 1.0,
) -> Tensor:
    """Return (N,) the ranking loss of scores s = log p - log(1 - p).

    Args:
        pair: (N, C) log p and log(1 - p).
        targets: (N, C) closed multi-hot.
        mask: (N, C) bool, which entries are known.
        calibration: the weight of the comparison of every class with a score of 0.
    """
    scores = pair[0] - pair[1]
    positive, negative = targets.to(scores.dtype), targets == 0
    losses = bce_loss(*pair, positive)
    counts: int | Tensor = targets.shape[-1]
    if mask is not None:
        positive, negative = torch.where(mask, positive, 0.0), negative & mask
        losses, counts = torch.where(mask, losses, 0.0), mask.sum(dim=-1).clamp_min(1)
    pairs = positive.sum(dim=-1) * negative.sum(dim=-1)
    ranked = pairwise_hinge(scores, positive, negative, RANK_MARGIN)
    return ranked / pairs.clamp_min(1) + calibration * losses.sum(dim=-1) / counts


def match_loss(encodings: Tensor, labels: Tensor, targets: Tensor, margin: float) -> Tensor:
    """Return (N,) the mean hinge by which rows are nearer to their own labels than to others.

    Args:
        encodings: (N, K) of rows, of length 1.
        labels: (N, K) of their labels.
        targets: (N, C) the label sets; rows with the same one are not compared.
        margin: by which the similarity to the own labels should exceed others.
    """
    similar = encodings @ labels.transpose(-1, -2)  # (N, N)
    own = similar.diagonal(dim1=-2, dim2=-1)[..., None]
    sets = targets.to(encodings.dtype)
    shared, sizes = sets @ sets.transpose(-1, -2), sets.square().sum(dim=-1)
    others = (sizes[..., None] + sizes[..., None, :] - 2 * shared > 0.5).to(similar.dtype)
    hinges = (margin - own + similar).clamp_min(0) * others
    return hinges.sum(dim=-1) / others.sum(dim=-1).clamp_min(1)


class TSLELoss(RowLoss):
    """Label ranking, and a margin between the own labels and those of other rows; trees and DAGs.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        margin: of encodings, above 0.
        weight: of the margin loss, at least 0.
        calibration: of the binary cross entropy in the ranking loss, at least 0.
        options: ``link``, ``reduction`` and ``validate``; see Loss.
    """

    function: ClassVar[Any] = staticmethod(rank_loss)
    uses_hierarchy = False
    search_space: ClassVar[Mapping[str, tuple[Any, ...]]] = {"calibration": (10.0, 100.0)}

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        *,
        margin: float = 0.2,
        weight: float = 1.0,
        calibration: float = 10.0,
        **options: Unpack[WeightedOptions],
    ) -> None:
        super().__init__(label_space, **options)
        if not 0 < margin < math.inf:
            raise HierlearnError(f"margin must be a number above 0, not {margin!r}")
        for name, value in (("weight", weight), ("calibration", calibration)):
            if not 0 <= value < math.inf:
                raise HierlearnError(f"{name} must be a number of at least 0, not {value!r}")
        self.margin, self.weight, self.calibration = float(margin), float(weight), calibration

    def compute(
        self, output: HeadOutput, targets: Tensor, mask: Tensor | None, weight: Tensor | None
    ) -> Tensor:
        """Return the loss; members of an ensemble are computed at once, each with its own rows."""
        return self.reduce(self.losses(output, targets, mask), targets, mask, weight)

    def losses(self, output: HeadOutput, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Return the ranking loss, and with encodings those of the labels and of the match."""
        total = rank_loss(output.pair, targets, mask, self.calibration)
        if not isinstance(output, EncodedOutput):
            return total
        known = targets if mask is None else targets * mask
        labels = output.coder.encode_labels(known).to(total.dtype)
        decoded = output.coder.decode(labels)
        matched = match_loss(output.encodings.to(total.dtype), labels, known, self.margin)
        of_labels = rank_loss(decoded.pair, targets, mask, self.calibration)
        return total + of_labels + self.weight * matched
