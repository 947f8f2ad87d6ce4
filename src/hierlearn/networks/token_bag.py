"""TokenBag: sparse text features through an embedding bag, then an MLP.

The first layer of an MLP on a bag of words, computed for the words that a text holds only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from hierlearn.networks.mlp import check_size
from hierlearn.networks.network import Dense, Dropout, Network
from hierlearn.networks.sparse import SparseRows

if TYPE_CHECKING:
    from torch import Tensor


class TokenBag(Network):
    """An embedding a word, summed with its weight over the text; ReLU, dropout, hidden layers.

    Args:
        inputs: D, the number of words.
        outputs: C, the number of classes.
        width: units of the embedding and of every hidden layer.
        depth: hidden layers, the embedding included.
        dropout: share of hidden units left out while training.
        members: how many models are stacked.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int = 256,
        depth: int = 1,
        dropout: float = 0.25,
        members: int | None = None,
    ) -> None:
        super().__init__(inputs, outputs, members, width=width, depth=depth, dropout=dropout)
        check_size(width=width, depth=depth)
        # Rows are of length 1, so a weight of size 1 keeps the sum of a text of that order.
        self.words = Dense(inputs, width, members, bound=1.0)
        layers: list[nn.Module] = [nn.ReLU(), Dropout(dropout)]
        for _ in range(depth - 1):
            layers += [Dense(width, width, members), nn.ReLU(), Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)
        self.head = Dense(width, outputs, members)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return the logits of sparse rows, or of the same rows made dense."""
        summed = x.times(self.words) if isinstance(x, SparseRows) else self.words(x)
        logits: Tensor = self.head(self.hidden(summed))
        return logits
