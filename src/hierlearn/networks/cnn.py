"""CNN, a small network for small images.

    block     convolution 3 x 3, group normalization, ReLU; half the side after all but the last
    features  the mean of the last block over the image

Group normalization, unlike batch normalization, lets no row depend on the others of its batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from hierlearn.backbones.backbone import in_parts
from hierlearn.errors import HierlearnError
from hierlearn.networks.augment import make_augment
from hierlearn.networks.heads import LinearHead
from hierlearn.networks.layers import Dropout, check_size
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec

GROUPS = 8


class CNNEncoder(nn.Module):
    """Convolutions from bytes to features.

    Args:
        channels: C of the images.
        width: channels of the first block; each block has twice those of the one before.
        depth: how many blocks.
        dropout: fraction of features left out while training.
        augment: see ``make_augment``.

    Attributes:
        features: F, the channels of the last block.
    """

    def __init__(
        self,
        channels: int,
        *,
        width: int = 32,
        depth: int = 4,
        dropout: float = 0.0,
        augment: nn.Module | None = None,
    ) -> None:
        super().__init__()
        check_size(width=width, depth=depth)
        if width % GROUPS:
            raise HierlearnError(f"width must be a multiple of {GROUPS}, not {width}")
        layers: list[nn.Module] = []
        before = channels
        for number in range(depth):
            after = width * 2**number
            layers += [
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.GroupNorm(GROUPS, after),
                nn.ReLU(),
            ]
            if number + 1 < depth:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
            before = after
        self.augment = augment
        self.blocks = nn.Sequential(*layers)
        self.dropout = Dropout(dropout)
        self.features = before

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, F) features of (N, C, H, W) images with values from 0 to 255."""
        return in_parts(self.encode, x, training=self.training)

    def encode(self, x: Tensor) -> Tensor:
        """Return the features of a batch."""
        features: Tensor = self.blocks(self.pixels(x)).mean(dim=(-2, -1))
        dropped: Tensor = self.dropout(features)
        return dropped

    def pixels(self, x: Tensor) -> Tensor:
        """Return what the first block reads: changed at random, values from -1 to 1."""
        weight: Any = self.blocks[0].weight
        x = x.to(weight.dtype) / 255
        if self.augment is not None:
            x = self.augment(x)
        return x * 2 - 1


def cnn(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    width: int = 32,
    depth: int = 4,
    dropout: float = 0.0,
    augment: str = "none",
    flip: bool = False,
) -> Network:
    """Return convolutions, then a linear head; see CNNEncoder and ``make_augment``."""
    if inputs.kind != "images":
        raise HierlearnError(
            f"the network cnn reads images, but the inputs are {inputs.kind}; use mlp or token-bag"
        )
    encoder = CNNEncoder(
        inputs.shape[0],
        width=width,
        depth=depth,
        dropout=dropout,
        augment=make_augment(augment, flip=flip),
    )
    return Network(encoder, LinearHead(encoder.features, label_space, link))


cnn.search_space = {"width": (32, 64), "augment": ("none", "light")}  # type: ignore[attr-defined]  # values worth trying
