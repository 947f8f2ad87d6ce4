"""TabM: k members that share the weights of an MLP, each with scales of its own.

    y_i = s_i * (W (r_i * x)) + b_i,    i = 1 ... k

W is shared; r, s and b are vectors of member i. The r of the first layer start as random signs, all
others as 1, so that members differ from the first step on. Every member has a linear head of its
own. Training takes the mean of the k losses, predicting the mean of the k probabilities. Gorishniy,
Kotelnikov and Babenko, "TabM: Advancing tabular deep learning with parameter-efficient ensembling"
(2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from hierlearn.networks.heads import LinearHead
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.layers import Dense, Dropout, check_layers, check_size
from hierlearn.networks.network import Network
from hierlearn.training.recipes import FEWEST_EPOCHS, PLAIN_EPOCHS, Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import HeadOutput, Link
    from hierlearn.networks.inputs import InputSpec
    from hierlearn.training.choose import Facts


SCALES = ("r", "s", "bias")


class SharedDense(nn.Module):
    """A linear layer that k members share, with scales and a bias of each.

    Args:
        inputs: D.
        outputs: K.
        members: k.
        signs: whether r starts as random signs, instead of 1.
    """

    def __init__(self, inputs: int, outputs: int, members: int, *, signs: bool) -> None:
        super().__init__()
        self.dense = Dense(inputs, outputs, bias=False)
        drawn = torch.randint(0, 2, (members, inputs)) * 2.0 - 1.0
        self.r = nn.Parameter(drawn if signs else torch.ones(members, inputs))
        self.s = nn.Parameter(torch.ones(members, outputs))
        bound = self.dense.bound
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound).repeat(members, 1))

    @classmethod
    def stack(cls, layers: Sequence[SharedDense]) -> SharedDense:
        """Return one layer that holds the weights of several networks."""
        new = cls.__new__(cls)
        nn.Module.__init__(new)
        new.dense = Dense.stack([layer.dense for layer in layers])
        for name in SCALES:
            values = torch.stack([getattr(layer, name).detach() for layer in layers])
            setattr(new, name, nn.Parameter(values))
        return new

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., N, k, K) of (..., N, k, D), or of (..., N, 1, D) that all members read."""
        r, s, bias = (
            one if one.dim() == 2 else one.unsqueeze(1) for one in (self.r, self.s, self.bias)
        )
        read = x * r
        found: Tensor = self.dense(read.flatten(-3, -2))
        return found.view(*read.shape[:-1], found.shape[-1]) * s + bias


class TabMEncoder(nn.Module):
    """Hidden layers with ReLU and dropout that k members share.

    Args:
        inputs: D, the number of features.
        members: k.
        width: units of a hidden layer.
        depth: hidden layers.
        dropout: fraction of hidden units left out while training.
    """

    stackable: ClassVar[bool] = True

    def __init__(
        self, inputs: int, members: int, *, width: int, depth: int, dropout: float
    ) -> None:
        super().__init__()
        check_layers(width, depth)
        self.layers = nn.ModuleList(
            SharedDense(width if number else inputs, width, members, signs=not number)
            for number in range(depth)
        )
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor | SparseRows) -> Tensor:
        """Return (..., N, k, width) features."""
        dense = x.dense() if isinstance(x, SparseRows) else x
        features = dense.unsqueeze(-2)
        for layer in self.layers:
            features = torch.relu(layer(features))
            features = self.dropout(features.flatten(-2)).view(features.shape)
        return features


class MemberHead(LinearHead):
    """The linear head of one member; the arguments are LinearHead's.

    Attributes:
        number: of the member, from 0.
    """

    stackable = True

    def __init__(
        self,
        features: int,
        label_space: LabelSpace | Hierarchy,
        link: str | Link = "sigmoid",
        number: int = 0,
    ) -> None:
        super().__init__(features, label_space, link)
        del self.features  # of one of several members: no other head could read them
        self.number = number

    def forward(self, features: Tensor) -> HeadOutput:  # type: ignore[override]
        """Return the logits with their link."""
        return super().forward(features[..., self.number, :])


def tabm(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    members: int = 32,
    width: int = 256,
    depth: int = 2,
    dropout: float = 0.1,
) -> Network:
    """Return a TabM: an MLP that k members share, and a linear head for each of them."""
    check_size(members=members, width=width)
    encoder = TabMEncoder(inputs.width, members, width=width, depth=depth, dropout=dropout)
    heads = [MemberHead(width, label_space, link, number) for number in range(members)]
    return Network(encoder, {f"member{number}": head for number, head in enumerate(heads)})


tabm.search_space = {"width": (128, 256, 512), "dropout": (0.1, 0.3)}  # type: ignore[attr-defined]  # values worth trying


TABM_STEPS = 1200  # of a TabM
TABM_SHORT = 500  # for rows with several labels


def tabm_rule(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of a TabM: short where labels are several, and so noisy."""
    short = not facts.one_path
    steps = TABM_SHORT if short else TABM_STEPS
    epochs = min(max(round(steps / facts.steps_per_epoch), FEWEST_EPOCHS), PLAIN_EPOCHS)
    ple = facts.kind == "numbers"
    return {
        "preprocessing": "piecewise-linear" if ple else "latent" if facts.kind == "texts" else None,
        "network_options": {"members": 16, "depth": 1, "dropout": 0.5 if short else 0.25},
        "settings": {"epochs": epochs},
    }


TABM = Recipe(
    "mixed",
    "TabM: 16 members share an MLP, on piecewise-linear encoded numbers (Gorishniy 2025)",
    network="tabm",
    link="max",
    rule=tabm_rule,
)
