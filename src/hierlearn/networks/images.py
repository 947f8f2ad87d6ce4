"""CNN, a small network for small images, and images changed at random while training.

    block     convolution 3 x 3, group normalization, ReLU; half the side after all but the last
    features  the mean of the last block over the image
    light     a random crop, turn, shear and shift in one affine map; brightness, contrast and, of
              color images, saturation. No flip unless asked for: a mirrored letter is another one.

Group normalization, unlike batch normalization, lets no row depend on the others of its batch. How
an image changes depends on the seed, the step and its place in the global batch alone, so a
training resumes bit for bit, and several processes change images as one does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hierlearn.backbones.backbone import in_parts
from hierlearn.errors import HierlearnError
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


DRAWS = 10  # random numbers per image
ANGLE = 12 / 180 * math.pi
SHEAR = 0.15
SHIFT = 0.08  # of the side
SCALE = (0.8, 1.15)
COLOR = 0.25
LUMA = (0.299, 0.587, 0.114)


class Augment(Dropout):
    """Images changed at random while training; as they are otherwise.

    Args:
        flip: whether to mirror half of the images from left to right.
    """

    def __init__(self, *, flip: bool = False) -> None:
        super().__init__(0.0)
        self.flip = flip

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, C, H, W) images with values from 0 to 1, changed while training."""
        if not self.training or not len(x):
            return x
        drawn = self.draw(x) * 2 - 1  # (N, DRAWS) from -1 to 1
        return jittered(moved(x, drawn, flip=self.flip), drawn)

    def draw(self, x: Tensor) -> Tensor:
        """Return (N, DRAWS) numbers from 0 to 1 for the rows of this process."""
        total = len(x) if self.share is None else self.share.total
        generator = None if self.generators is None else self.generators[0]
        drawn = torch.rand(total, DRAWS, generator=generator, device=x.device)
        drawn = drawn if self.share is None else drawn[self.share.rows]
        return drawn.to(x.dtype)

    def extra_repr(self) -> str:
        """Show the settings when the module is printed."""
        return f"flip={self.flip}"


def make_augment(name: str = "none", *, flip: bool = False) -> Augment | None:
    """Return an augmentation by name.

    Args:
        name: "none" or "light".
        flip: whether to mirror half of the images from left to right, with "light".
    """
    if not isinstance(flip, bool):
        raise HierlearnError(f"flip must be true or false, not {flip!r}")
    if flip and name != "light":
        raise HierlearnError(f"flip goes with augment='light', not with {name!r}")
    if name == "none":
        return None
    if name == "light":
        return Augment(flip=flip)
    raise HierlearnError(f"augment must be 'none' or 'light', not {name!r}")


def moved(x: Tensor, drawn: Tensor, *, flip: bool = False) -> Tensor:
    """Return images under a random affine map; what lies outside is the nearest pixel."""
    angle, shear = drawn[:, 0] * ANGLE, drawn[:, 1] * SHEAR
    low, high = math.log(SCALE[0]), math.log(SCALE[1])
    scales = (drawn[:, 2:4] * (high - low) / 2 + (high + low) / 2).exp()
    shift = drawn[:, 4:6] * SHIFT * 2  # a side is 2 long
    sine, cosine = angle.sin(), angle.cos()
    mirror = torch.where(drawn[:, 6] < 0, -1.0, 1.0) if flip else torch.ones_like(angle)
    first = torch.stack(
        [mirror * scales[:, 0] * cosine, scales[:, 1] * (shear - sine), shift[:, 0]], dim=1
    )
    second = torch.stack([mirror * scales[:, 0] * sine, scales[:, 1] * cosine, shift[:, 1]], dim=1)
    theta = torch.stack([first, second], dim=1).to(x.dtype)  # (N, 2, 3)
    grid = nn.functional.affine_grid(theta, list(x.shape), align_corners=False)
    return nn.functional.grid_sample(
        x, grid.to(x.dtype), mode="bilinear", padding_mode="border", align_corners=False
    )


def jittered(x: Tensor, drawn: Tensor) -> Tensor:
    """Return images with random brightness, contrast and saturation, clamped to [0, 1]."""
    brightness, contrast, saturation = (
        1 + drawn[:, number, None, None, None] * COLOR for number in (7, 8, 9)
    )
    x = x * brightness
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    x = (x - mean) * contrast + mean
    if x.shape[1] == 3:
        luma = torch.tensor(LUMA, dtype=x.dtype, device=x.device).view(1, 3, 1, 1)
        grey = (x * luma).sum(dim=1, keepdim=True)
        x = (x - grey) * saturation + grey
    return x.clamp(0, 1)
