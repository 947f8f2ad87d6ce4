"""TokenBag: sparse text features through an embedding bag, then hidden layers and a linear head.

The first layer of an MLP on a bag of words, computed only for the words of each text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from hierlearn.networks.heads import LinearHead
from hierlearn.networks.layers import Dense, Dropout, InputNoise, check_layers
from hierlearn.networks.network import Network
from hierlearn.networks.sparse import SparseRows

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec


class TokenBagEncoder(nn.Module):
    """One embedding per word, summed with its weight over the text; ReLU, dropout, hidden layers.

    Args:
        inputs: D, the number of words.
        width: units of the embedding and of every hidden layer.
        depth: hidden layers, the embedding included.
        dropout: fraction of hidden units left out while training.
        input_dropout: fraction of the words of each text left out while training.
    """

    stackable: ClassVar[bool] = True

    def __init__(
        self,
        inputs: int,
        *,
        width: int = 256,
        depth: int = 1,
        dropout: float = 0.25,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_layers(width, depth)
        self.noise = InputNoise(input_dropout)
        # Rows are of length 1, so a weight of size 1 keeps the sum of a text of that order.
        self.words = Dense(inputs, width, bound=1.0)
        layers: list[nn.Module] = [nn.ReLU(), Dropout(dropout)]
        for _ in range(depth - 1):
            layers += [Dense(width, width), nn.ReLU(), Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return the features of sparse rows, or of the same rows made dense."""
        x = self.noise(x)
        summed = x.times(self.words) if isinstance(x, SparseRows) else self.words(x)
        features: Tensor = self.hidden(summed)
        return features


def token_bag(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    width: int = 256,
    depth: int = 1,
    dropout: float = 0.25,
    input_dropout: float = 0.0,
) -> Network:
    """Return an embedding bag and hidden layers, then a linear head; see TokenBagEncoder."""
    encoder = TokenBagEncoder(
        inputs.width, width=width, depth=depth, dropout=dropout, input_dropout=input_dropout
    )
    return Network(encoder, LinearHead(width, label_space, link))


token_bag.search_space = {"width": (128, 256), "dropout": (0.25, 0.5)}  # type: ignore[attr-defined]  # values worth trying
