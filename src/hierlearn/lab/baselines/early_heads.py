"""Early heads: the hidden layers before the last one learn the coarse levels of the taxonomy, too.

    level h of H  ->  hidden layer ceil(h n / H) of n
    loss          =   l(main head) + weight * bce(early heads)

Every level whose layer is not the last one has a linear head there; the levels that remain have
only the main head, which alone answers: early heads are not computed when predicting. bce is summed
over the classes of the levels with an early head, so that with weight 1 a coarse class counts there
as much as in a main head that is trained by bce.

Alsallakh et al., "Do convolutional neural networks learn class hierarchy?" (2018), who add such
branches to AlexNet, since early layers separate coarse groups of classes already. Their branches
have a softmax each; sigmoids also fit rows with several labels, and branches that end early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError
from hierlearn.hierarchy import LabelSpace
from hierlearn.lab.baselines.hmcn import GlobalHead, set_biases
from hierlearn.links import Head, HeadOutput, make_link
from hierlearn.networks.images import CNNEncoder, make_augment
from hierlearn.networks.inputs import SparseRows
from hierlearn.networks.layers import Dense, Dropout
from hierlearn.networks.mlp import MLPEncoder
from hierlearn.networks.network import MAIN, Auxiliary, Network
from hierlearn.training.recipes import SEVERAL_EPOCHS, Recipe, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hierlearn.hierarchy import Hierarchy
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec
    from hierlearn.training.choose import Facts


EARLY = "early"  # the name of the early heads together


class MLPLayers(MLPEncoder):
    """The activations of all hidden layers; the arguments are MLPEncoder's."""

    stackable: ClassVar[bool] = True

    def forward(self, x: Tensor | SparseRows) -> list[Tensor]:  # type: ignore[override]
        """Return (N, width) of every hidden layer."""
        read = x.dense() if isinstance(x, SparseRows) else x
        found = []
        for layer in self.hidden:
            read = layer(read)
            if type(layer) is Dropout:  # the end of a hidden layer
                found.append(read)
        return found


class CNNLayers(CNNEncoder):
    """The means over the image of all blocks; the arguments are CNNEncoder's."""

    def forward(self, x: Tensor) -> list[Tensor]:  # type: ignore[override]
        """Return (N, channels) of every block; of the last one alone when predicting."""
        if not self.training:
            return [super().forward(x)]
        read, found = self.pixels(x), list[Tensor]()
        for layer in self.blocks:
            read = layer(read)
            if isinstance(layer, nn.ReLU):  # the end of a block
                found.append(read.mean(dim=(-2, -1)))
        return [*found[:-1], self.dropout(found[-1])]


class EarlyHead(Head):
    """The classes of coarse levels, each level from its hidden layer.

    Args:
        widths: the width of every hidden layer.
        label_space: what can be predicted, or a Hierarchy.

    Attributes:
        layers: the hidden layer of each level with an early head, from 0, the top level first.
    """

    stackable = True

    def __init__(self, widths: Sequence[int], label_space: LabelSpace | Hierarchy) -> None:
        super().__init__()
        self.link = make_link(label_space, "sigmoid")
        sizes = self.link.hierarchy.level_sizes
        self.layers = early_layers(len(sizes), len(widths))
        self.sizes = list(sizes[: len(self.layers)])
        self.others = sum(sizes[len(self.layers) :])
        self.outputs = nn.ModuleList(
            Dense(widths[layer], size) for layer, size in zip(self.layers, self.sizes, strict=True)
        )

    def forward(self, features: list[Tensor]) -> HeadOutput:  # type: ignore[override]
        """Return the logits of the coarse levels, and 0 for all others, with their link."""
        logits = [
            output(features[layer]) for layer, output in zip(self.layers, self.outputs, strict=True)
        ]
        rest = logits[0].new_zeros(*logits[0].shape[:-1], self.others)
        return HeadOutput.from_logits(torch.cat([*logits, rest], dim=-1), self.link)

    @torch.no_grad()
    def set_prior(self, counts: Tensor, terminal_counts: Tensor, rows: int) -> None:
        """Set the biases to the logits under which every class has its fraction of the rows."""
        prior = self.link.prior_logits(counts, terminal_counts, rows)[: sum(self.sizes)]
        set_biases(self.outputs, prior, self.sizes)


def early_layers(levels: int, layers: int) -> list[int]:
    """Return the hidden layer of each level whose layer is not the last one, from 0."""
    every = [-(-level * layers // levels) - 1 for level in range(1, levels + 1)]
    return [layer for layer in every if layer < layers - 1]


def early_heads(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    width: int | None = None,
    depth: int | None = None,
    dropout: float | None = None,
    augment: str = "none",
    weight: float = 1.0,
) -> Network:
    """Return an MLP, or convolutions for images, with heads for coarse levels on early layers.

    Args:
        label_space: what can be predicted, or a Hierarchy.
        inputs: what the network reads.
        link: of the main head.
        width: units of a hidden layer, 800; for images, channels of the first block, 32.
        depth: n, hidden layers, 2; for images, blocks, 4.
        dropout: as of ``mlp`` and ``cnn``.
        augment: for images, see ``make_augment``.
        weight: what the early heads count, at least 0; 0 is the network without them.
    """
    if not weight >= 0:
        raise HierlearnError(f"weight must be at least 0, not {weight!r}")
    space, images = LabelSpace.of(label_space), inputs.kind == "images"
    if augment != "none" and not images:
        raise HierlearnError(f"augment {augment!r} is for images, not for {inputs.kind}")
    depth = (4 if images else 2) if depth is None else depth
    encoder: MLPLayers | CNNLayers
    if images:
        width = 32 if width is None else width
        changes, rate = make_augment(augment), 0.0 if dropout is None else dropout
        encoder = CNNLayers(
            inputs.shape[0], width=width, depth=depth, dropout=rate, augment=changes
        )
        widths = [width * 2**block for block in range(depth)]
    else:
        width = 800 if width is None else width
        rate = 0.25 if dropout is None else dropout
        encoder = MLPLayers(inputs.width, width=width, depth=depth, dropout=rate)
        widths = [width] * depth
    heads: dict[str, Head] = {MAIN: GlobalHead(widths[-1], space, link)}
    coarse = len(early_layers(space.hierarchy.depth, depth))
    if not weight or not coarse:  # a flat taxonomy, or one layer
        return Network(encoder, heads)
    heads[EARLY] = EarlyHead(widths, space)
    levels = [1.0] * coarse + [0.0] * (space.hierarchy.depth - coarse)
    own = Auxiliary("level-weighted", {"weights": levels}, weight)
    return Network(encoder, heads, {EARLY: own})


def early_heads_rule(facts: Facts) -> Mapping[str, Any]:
    """Return the settings of a network with early heads.

    One path per row: a softmax. Several labels, or none: the loss of ``max``, and since a deeper
    network fits noise sooner, at most so many epochs.
    """
    if facts.one_path:
        return {**plain(facts), "loss": "leaf-ce"}
    epochs = min(plain(facts)["settings"]["epochs"], SEVERAL_EPOCHS)
    return {"settings": {"epochs": epochs}, "loss": "mixed", "link": "max"}


EARLY_HEADS = Recipe(
    "mixed",
    "a deeper network whose early layers learn coarse levels, too (Alsallakh 2018)",
    network="early-heads",
    rule=early_heads_rule,
)
