"""MLP, the paper's network: one hidden layer of 800 units, ReLU, dropout 0.25. And Linear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from hierlearn.errors import HierlearnError
from hierlearn.networks.network import Dense, Dropout, Network
from hierlearn.networks.sparse import SparseRows

if TYPE_CHECKING:
    from torch import Tensor


class MLP(Network):
    """Hidden layers with ReLU and dropout, then a linear layer to the logits.

    Args:
        inputs: D, the number of features.
        outputs: C, the number of classes.
        width: units of a hidden layer.
        depth: hidden layers.
        dropout: share of hidden units left out while training.
        input_dropout: share of inputs left out while training.
        members: how many models are stacked.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        width: int = 800,
        depth: int = 1,
        dropout: float = 0.25,
        input_dropout: float = 0.0,
        members: int | None = None,
    ) -> None:
        super().__init__(
            inputs,
            outputs,
            members,
            width=width,
            depth=depth,
            dropout=dropout,
            input_dropout=input_dropout,
        )
        check_size(width=width, depth=depth)
        layers: list[nn.Module] = [Dropout(input_dropout)] if input_dropout else []
        for number in range(depth):
            layers.append(Dense(width if number else inputs, width, members))
            layers += [nn.ReLU(), Dropout(dropout)]
        self.hidden = nn.Sequential(*layers)
        self.head = Dense(width, outputs, members)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return the logits of dense rows; sparse ones are made dense."""
        dense = x.dense() if isinstance(x, SparseRows) else x
        logits: Tensor = self.head(self.hidden(dense))
        return logits


class Linear(Network):
    """A linear layer from the features to the logits.

    Args:
        inputs: D, the number of features.
        outputs: C, the number of classes.
        members: how many models are stacked.
    """

    def __init__(self, inputs: int, outputs: int, *, members: int | None = None) -> None:
        super().__init__(inputs, outputs, members)
        self.head = Dense(inputs, outputs, members)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return the logits of dense or sparse rows."""
        logits: Tensor = x.times(self.head) if isinstance(x, SparseRows) else self.head(x)
        return logits


def check_size(**sizes: int) -> None:
    """Refuse layers without units and networks without layers."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise HierlearnError(f"{name} must be a whole number from 1, not {value!r}")
