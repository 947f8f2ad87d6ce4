"""MLP, the paper's network: one hidden layer of 800 units, ReLU, dropout 0.25, a linear head."""

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


mlp.search_space = {"width": (400, 800), "dropout": (0.25, 0.5)}  # type: ignore[attr-defined]  # values worth trying
