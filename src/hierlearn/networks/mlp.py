"""MLP, the paper's network: one hidden layer of 800 units, ReLU, dropout 0.25, a linear head.

TokenBag is an MLP on a bag of words, whose first layer is computed for the words of a text alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn

from hierlearn.networks.heads import LinearHead
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.layers import Dense, Dropout, InputNoise, check_layers
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec


class MLPEncoder(nn.Module):
    """Hidden layers with ReLU and dropout.

    Args:
        inputs: D, the number of features.
        width: units of a hidden layer.
        depth: hidden layers.
        dropout: fraction of hidden units left out while training.
        input_dropout: fraction of inputs left out while training.
        input_noise: standard deviation of the Gaussian noise added to inputs while training; for
            standardized inputs.
    """

    stackable: ClassVar[bool] = True

    def __init__(
        self,
        inputs: int,
        *,
        width: int = 800,
        depth: int = 1,
        dropout: float = 0.25,
        input_dropout: float = 0.0,
        input_noise: float = 0.0,
    ) -> None:
        super().__init__()
        check_layers(width, depth)
        layers: list[nn.Module] = []
        if input_dropout or input_noise:
            layers.append(InputNoise(input_dropout, input_noise))
        for number in range(depth):
            layers += [Dense(width if number else inputs, width), nn.ReLU(), Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return the features of dense rows; sparse ones are made dense."""
        features: Tensor = self.hidden(x.dense() if isinstance(x, SparseRows) else x)
        return features


def mlp(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    width: int = 800,
    depth: int = 1,
    dropout: float = 0.25,
    input_dropout: float = 0.0,
    input_noise: float = 0.0,
) -> Network:
    """Return hidden layers with ReLU and dropout, then a linear head; see MLPEncoder."""
    encoder = MLPEncoder(
        inputs.width,
        width=width,
        depth=depth,
        dropout=dropout,
        input_dropout=input_dropout,
        input_noise=input_noise,
    )
    return Network(encoder, LinearHead(width, label_space, link))


class TokenBagEncoder(nn.Module):
    """One embedding per word, summed with its weight over the text; ReLU, dropout, hidden layers.

    Args:
        inputs: D, the number of words.
        width: units of the embedding and of every hidden layer.
        depth: hidden layers, the embedding included.
        dropout: fraction of hidden units left out while training.
    """

    stackable: ClassVar[bool] = True

    def __init__(
        self,
        inputs: int,
        *,
        width: int = 256,
        depth: int = 1,
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        check_layers(width, depth)
        # Rows are of length 1, so a weight of size 1 keeps the sum of a text of that order.
        self.words = Dense(inputs, width, bound=1.0)
        layers: list[nn.Module] = [nn.ReLU(), Dropout(dropout)]
        for _ in range(depth - 1):
            layers += [Dense(width, width), nn.ReLU(), Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return the features of sparse rows, or of the same rows made dense."""
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
) -> Network:
    """Return an embedding bag and hidden layers, then a linear head; see TokenBagEncoder."""
    encoder = TokenBagEncoder(inputs.width, width=width, depth=depth, dropout=dropout)
    return Network(encoder, LinearHead(width, label_space, link))
