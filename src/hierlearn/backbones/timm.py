"""timm: image encoders of timm, by name.

Weights come from the model's page on the hub, as safetensors and never as pickles; from a file of
your own with ``weights``; or are random with ``pretrained=false``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from hierlearn.backbones.backbone import Backbone, Encoder, in_parts
from hierlearn.backbones.hf import TIMEOUT, first_line
from hierlearn.backbones.torchvision import broken_torchvision
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.files.reading import check_regular

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WEIGHTS = "model.safetensors"  # on the hub
REMEDY = "name a file with weights=PATH.safetensors, or begin with random ones, pretrained=false"


class ImageEncoder(Encoder):
    """A network for images, with their normalization.

    Args:
        model: returns (N, F) features of (N, C, H, W) numbers.
        features: F.
        mean, std: (C,) of the training images of the model, with values in [0, 1].

    Attributes:
        augment: changes images with values in [0, 1] while training; None leaves them as they are.
        pretrained: whether ``load`` reads weights.
        weights: a file of them; None for those of the hub.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, model: Any, features: int, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.model = model
        self.features = features
        self.augment: nn.Module | None = None
        self.pretrained = True
        self.weights: str | None = None
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, F) features of (N, C, H, W) images with values from 0 to 255."""
        return in_parts(self.encode, x, training=self.training)

    def encode(self, x: Tensor) -> Tensor:
        """Return the features of a batch."""
        x = x.to(self.mean.dtype) / 255
        if self.augment is not None:
            x = self.augment(x)
        found: Tensor = self.model((x - self.mean) / self.std)
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
    training_options: ClassVar[Mapping[str, str]] = {"augment": "full", "flip": "full"}

    def describe(self, source: str) -> dict[str, Any]:
        """Return the name of a model and what it reads."""
        with torch.device("meta"):
            model = make_model(source)
        config = model.pretrained_cfg
        return {
            "model": source,
            "features": int(model.num_features),
            "mean": [float(one) for one in config["mean"]],
            "std": [float(one) for one in config["std"]],
            "shape": [int(one) for one in config["input_size"]],
        }

    def build(  # type: ignore[override]  # its options by name
        self,
        description: Mapping[str, Any],
        *,
        pretrained: bool = True,
        weights: str | None = None,
        augment: str = "none",
        flip: bool = False,
    ) -> ImageEncoder:
        """Return the encoder of a description, with random weights.

        Args:
            description: what ``describe`` returned.
            pretrained: whether ``load`` reads weights, or leaves them random.
            weights: a file of weights in safetensors, instead of those of the hub.
            augment: how images are changed while training; see ``networks.images``.
            flip: whether they are mirrored, too.
        """
        del augment, flip  # the network that is trained adds them
        if not isinstance(pretrained, bool):
            raise HierlearnError(f"pretrained must be true or false, not {pretrained!r}")
        if weights is not None and not pretrained:
            raise HierlearnError("weights are read, so leave out pretrained=false")
        model = make_model(description["model"])
        encoder = ImageEncoder(
            model, description["features"], description["mean"], description["std"]
        )
        encoder.pretrained, encoder.weights = pretrained, weights
        return encoder

    def load(self, encoder: Encoder, source: str) -> None:
        """Read the pretrained weights, unless they should stay random."""
        assert isinstance(encoder, ImageEncoder)
        if not encoder.pretrained:
            return
        config = encoder.model.pretrained_cfg
        path = encoder.weights or find_weights(source, config)
        tensors = read_weights(path)
        classifiers = config.get("classifier") or ()
        heads = (classifiers,) if isinstance(classifiers, str) else tuple(classifiers)
        kept = {
            name: value
            for name, value in tensors.items()
            if not any(name.startswith(f"{head}.") for head in heads)
        }
        try:
            encoder.model.load_state_dict(kept)
        except RuntimeError as error:
            raise HierlearnError(
                f"{path} does not hold the weights of {source} ({first_line(error)}); {REMEDY}"
            ) from None


def make_model(name: str) -> Any:
    """Return a model of timm without its classifier, with random weights."""
    timm = find_timm()
    if "/" in name or ":" in name or not timm.is_model(name):
        known = [name.partition(".")[0] for name in timm.list_models()]
        raise HierlearnError(nearest(name, known))
    try:
        return timm.create_model(name, pretrained=False, num_classes=0)
    except RuntimeError as error:
        raise HierlearnError(
            f"timm cannot make the model {name!r} ({first_line(error)}); see timm.list_models()"
        ) from None


def nearest(name: str, known: Sequence[str]) -> str:
    """Word a model that timm does not have; it has more than a thousand."""
    hint = unknown_name("model of timm", name, known).partition(" known: ")[0]
    return f"{hint} see timm.list_models()"


def read_weights(path: str) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(check_regular(path))
    except SafetensorError as error:
        raise HierlearnError(
            f"{path} is not a safetensors file that can be read ({first_line(error)}); {REMEDY}"
        ) from None


def find_weights(source: str, config: Mapping[str, Any]) -> str:
    """Return the file of a model's weights: in the cache of the hub, or downloaded into it.

    Args:
        source: the name of the model.
        config: of timm, which names the page on the hub.
    """
    import huggingface_hub as hub

    page = config.get("hf_hub_id")
    if not page:
        raise HierlearnError(f"timm has no pretrained weights of {source}; {REMEDY}")
    cached = hub.try_to_load_from_cache(page, WEIGHTS)
    if isinstance(cached, str):
        return cached
    try:
        if not hub.constants.HF_HUB_OFFLINE:  # one request: downloads would try many times
            hub.get_hf_file_metadata(hub.hf_hub_url(page, WEIGHTS), timeout=TIMEOUT)
        found: str = hub.hf_hub_download(page, WEIGHTS)
    except Exception as error:  # of the connection, which can fail in many ways
        raise HierlearnError(
            f"the pretrained weights of {source} cannot be downloaded ({first_line(error)}); "
            f"{REMEDY}"
        ) from None
    return found


def find_timm() -> Any:
    """Import timm, or say how to install it."""
    broken = broken_torchvision()
    if broken:
        raise HierlearnError(f"image encoders need timm, and timm needs torchvision: {broken}")
    try:
        import timm
    except ImportError as error:
        raise HierlearnError(
            f"image encoders need timm ({error}); install it with: pip install timm"
        ) from None
    return timm
