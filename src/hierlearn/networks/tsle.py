"""TSLE: rows and label sets are encoded in one space, and encodings are decoded to labels.

    fm(x)     = 1/2 ((sum_i x_i v_i)^2 - sum_i x_i^2 v_i^2),  the sum over pairs of x_i x_j v_i v_j
    encode(x) = unit length of (W x + MLP(norm(fm(x))))
    logits    = MLP(encode(x))

After Chen et al., "Two-stage label embedding via neural factorization machine for multi-label
classification" (2019). Rows and label sets have an encoder each, one decoder is of both. Pairs say
nothing of a label that is alone, so the linear term of Neural FM (He and Chua, 2017) is part of
the encoding. Label sets are encoded while training alone. Trained by the loss ``tsle``, as the
recipe of this name does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from hierlearn.hierarchy import LabelSpace
from hierlearn.links import Head, HeadOutput, make_link
from hierlearn.losses.tsle import EncodedOutput
from hierlearn.networks.batch_norm import BatchNorm
from hierlearn.networks.heads import LinearHead
from hierlearn.networks.layers import Dense, Dropout, check_size
from hierlearn.networks.network import Network
from hierlearn.networks.sparse import SparseRows

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import Link
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


tsle.search_space = {"size": (256, 512), "dropout": (0.25, 0.5)}  # type: ignore[attr-defined]  # values worth trying
