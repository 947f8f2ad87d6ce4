"""TSLE: rows and label sets are encoded in one space, and encodings are decoded to labels.

    fm(x)     = 1/2 ((sum_i x_i v_i)^2 - sum_i x_i^2 v_i^2),  the sum over pairs of x_i x_j v_i v_j
    encode(x) = unit length of (W x + MLP(norm(fm(x))))
    logits    = MLP(encode(x))

After Chen et al., "Two-stage label embedding via neural factorization machine for multi-label
classification" (2019). Rows and label sets have an encoder each, one decoder is of both. Pairs say
nothing of a label that is alone, so the linear term of Neural FM (He and Chua, 2017) is part of
the encoding. Label sets are encoded while training alone. Trained by the loss ``tsle``, as the
recipe of this name does.

Its loss: labels are ranked, and a row is nearest to the encoding of its own labels.

    rank(s)   = mean over pairs of a label p and another class n of max(0, 1 - s_p + s_n)
                + calibration * mean over the classes of bce(s)
    match(i)  = mean over rows j with other labels of max(0, margin - e_i . l_i + e_i . l_j)
    l(i)      = rank(decode(e_i)) + rank(decode(l_i)) + weight * match(i)

e are the encodings of rows and l those of their labels, of length 1, as the network ``tsle``
returns them. Plain logits, and the outputs of other networks, have no
encodings: then l(i) = rank(s).

Ranking alone leaves the scores of a row free up to a constant. The second part of rank compares
every class with a virtual one of score 0, as in calibrated label ranking (Fürnkranz et al., 2008);
with the logistic loss for these pairs it is binary cross entropy, so a sigmoid reads the scores.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.lab.baselines.devise import pairwise_hinge
from hierlearn.lab.baselines.hmcn import BatchNorm
from hierlearn.links import Head, HeadOutput, make_link
from hierlearn.losses.bases import bce_loss
from hierlearn.losses.loss import RowLoss
from hierlearn.networks.heads import LinearHead
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.layers import Dense, Dropout, check_size
from hierlearn.networks.network import Network
from hierlearn.training.recipes import Recipe, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import Link
    from hierlearn.losses.loss import WeightedOptions
    from hierlearn.networks.inputs import InputSpec


def interactions(x: Tensor, factors: Tensor) -> Tensor:
    """Return (N, F) sum over pairs i < j of x_i x_j v_i v_j, in O(N D F).

    Args:
        x: (N, D).
        factors: (D, F) the vectors v of the inputs, or (M, D, F) of M members.
    """
    return 0.5 * ((x @ factors).square() - x.square() @ factors.square())


class Factors(nn.Module):
    """The layer of a factorization machine.

    Args:
        inputs: D.
        factors: F, the width of the vectors of the inputs.
    """

    stackable: ClassVar[bool] = True

    def __init__(self, inputs: int, factors: int) -> None:
        super().__init__()
        self.vectors = Dense(inputs, factors, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, F) the pairs of inputs."""
        return interactions(x, self.vectors.weight)


class FMEncoder(nn.Module):
    """A factorization machine before an MLP, beside a linear map; encodings have length 1.

    Args:
        inputs: D.
        size: K, the width of an encoding.
        factors: F, the width of the vectors of the inputs.
        width: units of the hidden layer.
        dropout: fraction of pairs and of hidden units left out while training.
    """

    stackable: ClassVar[bool] = True

    def __init__(self, inputs: int, size: int, *, factors: int, width: int, dropout: float) -> None:
        super().__init__()
        self.linear = Dense(inputs, size)
        self.pairs = nn.Sequential(
            Factors(inputs, factors),
            BatchNorm(factors),
            Dropout(dropout),
            Dense(factors, width),
            nn.ReLU(),
            Dropout(dropout),
            Dense(width, size),
        )

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return (N, K) encodings."""
        dense = x.dense() if isinstance(x, SparseRows) else x
        return normalize(self.linear(dense) + self.pairs(dense), dim=-1)


class TSLEHead(Head):
    """The decoder of encodings, and the encoder of labels that training needs.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        labels: the encoder of label sets.
        size: K, the width of an encoding.
        width: units of the hidden layer of the decoder.
        dropout: fraction of these left out while training.
        link: a name of LINKS or a Link.
    """

    stackable = True
    used_by_loss = True

    def __init__(
        self,
        label_space: LabelSpace | Hierarchy,
        labels: FMEncoder,
        *,
        size: int,
        width: int,
        dropout: float,
        link: str | Link = "sigmoid",
    ) -> None:
        super().__init__()
        self.link = make_link(label_space, link)
        self.labels = labels
        self.scale = size**0.5  # entries of about 1, as layers expect them
        self.hidden = nn.Sequential(Dense(size, width), nn.ReLU(), Dropout(dropout))
        self.output = LinearHead(width, label_space, self.link)

    def forward(self, features: Tensor) -> HeadOutput:
        """Return the decoded encodings; in training with them, for the loss ``tsle``."""
        found = self.decode(features)
        if not self.training or found.logits is None:
            return found
        return EncodedOutput.of(found.logits, self.link, features, self)

    def encode_labels(self, targets: Tensor) -> Tensor:
        """Return (N, K) the encodings of (N, C) label sets."""
        found: Tensor = self.labels(targets.to(self.output.linear.weight.dtype))
        return found

    def decode(self, encodings: Tensor) -> HeadOutput:
        """Return the logits of (N, K) encodings, with their link."""
        found: HeadOutput = self.output(self.hidden(encodings * self.scale))
        return found

    @torch.no_grad()
    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Set the last bias to the logits under which every class has its fraction of the rows."""
        self.output.set_prior(counts, terminal_counts, rows)


def tsle(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    size: int = 256,
    factors: int = 64,
    width: int = 400,
    dropout: float = 0.5,
) -> Network:
    """Return an encoder of rows, one of label sets, and a decoder of both."""
    space = LabelSpace.of(label_space)
    check_size(size=size, factors=factors, width=width)
    rows, labels = (
        FMEncoder(count, size, factors=factors, width=width, dropout=dropout)
        for count in (inputs.width, len(space))
    )
    head = TSLEHead(space, labels, size=size, width=width, dropout=dropout, link=link)
    return Network(rows, head)


RANK_MARGIN = 1.0  # by which the score of a label should exceed others


class EncodedOutput(HeadOutput):
    """The output of a head with the encodings of its rows, and what encodes their labels.

    Attributes:
        encodings: (N, K), or (M, N, K) of the M members of an ensemble, of length 1.
        coder: the head, which encodes labels and decodes encodings.
    """

    encodings: Tensor
    coder: TSLEHead

    @classmethod
    def of(cls, logits: Tensor, link: Link, encodings: Tensor, coder: TSLEHead) -> EncodedOutput:
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


TSLE = Recipe(
    "tsle",
    "TSLE: rows and label sets encoded in one space, by factorization machines (Chen 2019)",
    network="tsle",
    rule=plain,
)
