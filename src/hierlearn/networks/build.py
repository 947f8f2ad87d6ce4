"""Build: a network by name, with its options, as a model folder stores it.

A name is one of NETWORKS, a backbone such as ``hf:PATH``, whose encoder is trained with a linear
head, or ``package.module:name`` of code that is importable. A factory gets the label space and the
InputSpec, and returns any ``nn.Module``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import partial
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any

import torch

from hierlearn.backbones import find_backbone, names_backbone
from hierlearn.errors import HierlearnError, plural, unknown_name
from hierlearn.files.structured import Range
from hierlearn.networks.blend import Blend
from hierlearn.networks.ensemble import ensemble_of, networks_in
from hierlearn.networks.heads import LinearHead, make_head
from hierlearn.networks.images import make_augment
from hierlearn.networks.inputs import InputSpec
from hierlearn.networks.layers import check_memory
from hierlearn.networks.network import Network
from hierlearn.registry import is_spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link

GIVEN = ("label_space", "inputs")  # arguments of a factory that are not options


@dataclass(frozen=True)
class HeadSpec:
    """How to build a head, as plain values.

    Attributes:
        kind: a name of HEADS.
        options: what its factory takes beside the features and the label space.
    """

    kind: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkSpec:
    """How to build a network again, as plain values.

    Attributes:
        name: of NETWORKS, or ``package.module:name``.
        inputs: what it reads.
        options: what the factory takes beside the label space and the inputs.
        members: how many networks are stacked; None for one alone.
        heads: instead of the head that the factory makes: the kind of each head, a name of HEADS,
            and its options, by the name of the head.
        parts: the networks of a blend, which has no factory of its own.
    """

    name: str
    inputs: InputSpec
    options: dict[str, Any] = field(default_factory=dict)
    members: Annotated[int, Range(1, 1_000)] | None = None
    heads: dict[str, HeadSpec] = field(default_factory=dict)
    parts: tuple[PartSpec, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NetworkSpec:
        """Restore what ``to_dict`` returned."""
        inputs = InputSpec.from_dict(values["inputs"])
        heads = {name: HeadSpec(**head) for name, head in values["heads"].items()}
        parts = tuple(PartSpec.from_dict(one) for one in values["parts"])
        return cls(values["name"], inputs, values["options"], values["members"], heads, parts)

    @property
    def takes_link(self) -> bool:
        """Whether the factory takes a link by name: its logits may then be read by another one."""
        if self.heads or self.parts:  # each with a link of its own, if it has logits
            return False
        return "link" in signature(find_factory(self.name)).parameters

    @property
    def foreign(self) -> list[str]:
        """The factories of networks and heads that building it would import and call."""
        if self.parts:
            return [name for part in self.parts for name in part.network.foreign]
        named = [self.name, *(head.kind for head in self.heads.values())]
        return [one for one in named if is_spelled(one) and not names_backbone(one)]


@dataclass(frozen=True)
class PartSpec:
    """A network of a blend, as plain values.

    Attributes:
        name: what it is called.
        network: how to build it.
        link: by which its logits are read.
        answers: the weight of every answer that counts: of a head by name, or of their average.
        begin: the first of its columns among those of all inputs.
        sharpness: the power to which its masses are raised before they are blended.
    """

    name: str
    network: NetworkSpec
    link: str
    answers: dict[str, float]
    begin: Annotated[int, Range(0)] = 0
    sharpness: Annotated[float, Range(0, 1000)] = 1.0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PartSpec:
        """Restore what ``to_dict`` returned."""
        return cls(**{**values, "network": NetworkSpec.from_dict(values["network"])})


def find_factory(name: str) -> Callable[..., nn.Module]:
    """Return a factory of NETWORKS, or that of a backbone such as ``hf:PATH``."""
    from hierlearn.networks import NETWORKS

    return partial(backbone, source=name) if names_backbone(name) else NETWORKS[name]


def option_names(name: str) -> list[str] | None:
    """Return the options that a factory takes; None where it takes any."""
    taken = signature(find_factory(name)).parameters
    if any(one.kind is Parameter.VAR_KEYWORD for one in taken.values()):
        return None
    return [one for one in taken if one not in GIVEN]


def build_network(
    spec: NetworkSpec, label_space: LabelSpace, seeds: Sequence[int] | None = None
) -> nn.Module:
    """Build a network, or an ensemble, and initialize its weights.

    Args:
        spec: what to make.
        label_space: what can be predicted.
        seeds: of the weights, one per member; None uses torch's generator as it is.
    """
    if spec.parts:
        parts = [build_network(one.network, label_space) for one in spec.parts]
        return Blend(label_space, spec.parts, parts)
    taken = option_names(spec.name)
    for option in spec.options:
        if taken is not None and option not in taken:
            raise HierlearnError(unknown_name(f"option of network {spec.name}", option, taken))
    made = []
    for number in range(spec.members or 1):
        with torch.random.fork_rng(devices=[]):
            if seeds is not None:
                torch.manual_seed(seeds[number])
            made.append(_build_one(spec, label_space))
        if number == 0 and spec.members is not None:
            size = spec.members * sum(one.nbytes for one in made[0].parameters())
            networks = plural(spec.members, "network takes", "networks take")
            check_memory(networks, size, "make them fewer or smaller")
    return made[0] if spec.members is None else ensemble_of(made)


def _build_one(spec: NetworkSpec, label_space: LabelSpace) -> nn.Module:
    factory = find_factory(spec.name)
    try:
        network = factory(label_space, spec.inputs, **spec.options)
    except TypeError as error:
        asked = ", ".join(f"{option}={value!r}" for option, value in spec.options.items())
        raise HierlearnError(
            f"network {spec.name} cannot be made with {asked or 'no options'} ({error})"
        ) from None
    except (RuntimeError, MemoryError) as error:
        if "alloc" not in str(error) and "memory" not in str(error):
            raise
        asked = ", ".join(f"{option}={value!r}" for option, value in spec.options.items())
        raise HierlearnError(
            f"network {spec.name} with {asked or 'no options'} does not fit into memory; make it "
            f"smaller"
        ) from None
    if not isinstance(network, torch.nn.Module):
        raise HierlearnError(
            f"network {spec.name} returned {type(network).__name__}, but a factory returns an "
            f"nn.Module"
        )
    return with_heads(network, spec.heads, label_space) if spec.heads else network


def to_save(spec: NetworkSpec, network: nn.Module) -> NetworkSpec:
    """Return how to build a network again whose tensors are then loaded.

    Args:
        spec: how it was built.
        network: what was built, a network or an ensemble.
    """
    first: Any = networks_in(network)[0]
    heads = {
        name: replace(head, options={**head.options, **first.heads[name].saved_options})
        for name, head in spec.heads.items()
    }
    return replace(spec, heads=heads)


def with_heads(
    network: nn.Module, heads: Mapping[str, HeadSpec], label_space: LabelSpace
) -> Network:
    """Return the encoder of a network with other heads."""
    made = network.heads.values() if isinstance(network, Network) else ()
    width: Any = next((head.features for head in made if hasattr(head, "features")), None)
    if not isinstance(network, Network) or width is None:
        raise HierlearnError(
            f"other heads need a Network with a LinearHead, whose features they read, not "
            f"{type(network).__name__}"
        )
    return Network(
        network.encoder,
        {
            name: make_head(head.kind, width, label_space, **head.options)
            for name, head in heads.items()
        },
    )


def backbone(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    source: str,
    description: Mapping[str, Any],
    link: str | Link = "sigmoid",
    **options: Any,
) -> Network:
    """Return a backbone with random weights, then a linear head.

    Args:
        label_space: what can be predicted.
        inputs: what it reads; a backbone sizes itself.
        source: ``prefix:source``, where its weights come from when it is trained.
        description: how to build it without the source.
        link: how the head reads its logits.
        options: of the backbone.
    """
    family, _ = find_backbone(source)
    known = description.get("vocab_size")
    if inputs.kind == "tokens" and known is not None and inputs.width > known:
        raise HierlearnError(
            f"tokens up to {inputs.width:,} need a vocabulary of more than {known}"
        )
    encoder = family.build(description, **options)
    if family.reads == "images":
        made: Any = encoder
        made.augment = make_augment(options.get("augment", "none"), flip=options.get("flip", False))
    return Network(encoder, LinearHead(encoder.features, label_space, link))
