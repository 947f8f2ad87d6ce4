"""timm: image encoders of timm, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from hierlearn.backbones.backbone import Backbone, Encoder
from hierlearn.backbones.compiled import declare_operators
from hierlearn.errors import HierlearnError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class ImageEncoder(Encoder):
    """A network for images, with their normalization.

    Args:
        model: returns (N, F) features of (N, C, H, W) numbers.
        features: F.
        mean, std: (C,) of the training images of the model, with values in [0, 1].
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, model: Any, features: int, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.model = model
        self.features = features
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, F) features of (N, C, H, W) images with values from 0 to 255."""
        found: Tensor = self.model((x.to(self.mean.dtype) / 255 - self.mean) / self.std)
        return found


class TimmBackbone(Backbone):
    """Image encoders of timm."""

    reads: ClassVar[Literal["texts", "images"]] = "images"
    step: ClassVar[str] = "images"
    such: ClassVar[str] = "resnet18"
    settings: ClassVar[Mapping[str, Any]] = {
        "epochs": 10,
        "batch_size": 64,
        "learning_rate": 3e-4,
        "warmup": 0.1,
        "weight_decay": 0.05,
    }

    def describe(self, source: str) -> dict[str, Any]:
        """Return the name of a model and what it reads."""
        model = find_timm().create_model(source, pretrained=False, num_classes=0)
        size = model.pretrained_cfg
        return {
            "model": source,
            "features": int(model.num_features),
            "mean": list(size["mean"]),
            "std": list(size["std"]),
            "shape": list(size["input_size"]),
        }

    def build(self, description: Mapping[str, Any]) -> ImageEncoder:  # type: ignore[override]
        """Return the encoder of a description, with random weights."""
        model = find_timm().create_model(description["model"], pretrained=False, num_classes=0)
        return ImageEncoder(model, description["features"], description["mean"], description["std"])

    def load(self, encoder: Encoder, source: str) -> None:
        """Read the pretrained weights."""
        assert isinstance(encoder, ImageEncoder)
        found = find_timm().create_model(source, pretrained=True, num_classes=0)
        encoder.model.load_state_dict(found.state_dict())


def find_timm() -> Any:
    """Import timm, or say how to install it."""
    declare_operators()
    try:
        import timm
    except ImportError as error:
        raise HierlearnError(
            f"image encoders need timm ({error}); install it with: pip install timm"
        ) from None
    return timm
