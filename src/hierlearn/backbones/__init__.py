"""Backbones: pretrained networks that turn texts or images into features.

``prefix:source`` names one: the family, a key of ``BACKBONES``, and which of them.

    hf:PATH_OR_NAME     a text encoder of transformers, from a folder or by its name
    timm:resnet18       an image encoder of timm

A family whose weights are in a package of its own has one backbone, and no source:

    minilm              sentences, by a small transformer
    wordllama           texts, by a vector per token: hundreds of times faster
    efficientnet        images

A backbone is frozen and used as preprocessing, or trained as the encoder of a network. Its own
packages are imported when it is used. A family of your own takes one line,
``BACKBONES["mine"] = MyBackbone()``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hierlearn.backbones.backbone import Backbone, Encoder
from hierlearn.backbones.hf import HFBackbone
from hierlearn.backbones.packaged import EfficientNetBackbone, MiniLMBackbone, WordLlamaBackbone
from hierlearn.backbones.timm import TimmBackbone
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.registry import parse_pairs

BACKBONES: dict[str, Backbone] = {
    "hf": HFBackbone(),
    "timm": TimmBackbone(),
    "minilm": MiniLMBackbone(),
    "wordllama": WordLlamaBackbone(),
    "efficientnet": EfficientNetBackbone(),
}
ALL = ""  # the key of the encoder of the only input, or of all columns of texts


def names_backbone(name: str | None) -> bool:
    """Whether a name is that of a backbone: ``prefix:source``, or a family without sources."""
    prefix, colon, _ = (name or "").partition(":")
    return prefix in BACKBONES and bool(colon or BACKBONES[prefix].package)


def find_backbone(name: str) -> tuple[Backbone, str]:
    """Return the family of a backbone and its source, of ``prefix:source``, or of its name."""
    prefix, colon, source = name.partition(":")
    if prefix not in BACKBONES:
        raise HierlearnError(unknown_name("family of backbones", prefix, BACKBONES))
    family = BACKBONES[prefix]
    if family.package:
        if colon:
            raise HierlearnError(
                f"{prefix} is one backbone, in the package {family.package}; "
                f"write {prefix}, not {name!r}"
            )
        return family, name
    if not colon or not source:
        raise HierlearnError(f"{name!r} names no backbone; write {prefix}:{family.such}")
    return family, source


def encoders_of(value: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return encoders by column; under ALL one that was given without a column."""
    return {ALL: value} if isinstance(value, str) else dict(value)


def parse_encoders(words: Iterable[str], what: str) -> dict[str, Any]:
    """Return encoders by column, of ``column=encoder``, or of one without a column.

    Example:
        >>> parse_encoders(["minilm", "photo=timm:resnet18"], "--encoder")
        {'photo': 'timm:resnet18', '': 'minilm'}
    """
    named: list[str] = []
    alone: list[str] = []
    for word in words:
        first = word.partition(",")[0]
        (alone if "=" not in first or names_backbone(first) else named).append(word)
    if len(alone) > 1:
        raise HierlearnError(
            f"{what} gives {alone[0]} and {alone[1]} without a column; write column={alone[1]}"
        )
    found = parse_pairs(named, what, as_typed=True)
    return {**found, ALL: alone[0]} if alone else found


def parse_encoder(value: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the source of an encoder and its options, as plain values.

    Args:
        value: ``prefix:source``, which options may follow after commas, or a mapping of ``source``
            and the options.

    Example:
        >>> parse_encoder("hf:models/small,pooling=cls")
        {'source': 'hf:models/small', 'pooling': 'cls'}
    """
    if isinstance(value, Mapping):
        if not isinstance(value.get("source"), str):
            raise HierlearnError(f"an encoder needs a source such as hf:PATH, not {dict(value)!r}")
        return dict(value)
    if not isinstance(value, str):
        raise HierlearnError(f"an encoder is written hf:PATH, not {value!r}")
    source, *options = value.split(",")
    return {"source": source.strip(), **parse_pairs(options, f"the encoder {source}")}


__all__ = [
    "BACKBONES",
    "Backbone",
    "Encoder",
    "encoders_of",
    "find_backbone",
    "names_backbone",
    "parse_encoder",
    "parse_encoders",
]
