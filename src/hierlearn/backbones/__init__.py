"""Backbones: pretrained networks that turn texts or images into features.

``prefix:source`` names one: the family, a key of ``BACKBONES``, and which of them.

    hf:PATH_OR_NAME     a text encoder of transformers, from a folder or by its name
    timm:resnet18       an image encoder of timm

A backbone is frozen and used as preprocessing, or trained as the encoder of a network. Its own
packages are imported when it is used. A family of your own takes one line,
``BACKBONES["mine"] = MyBackbone()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hierlearn.backbones.backbone import Backbone, Encoder
from hierlearn.backbones.hf import HFBackbone
from hierlearn.backbones.timm import TimmBackbone
from hierlearn.errors import HierlearnError, unknown_name
from hierlearn.registry import parse_pairs

BACKBONES: dict[str, Backbone] = {"hf": HFBackbone(), "timm": TimmBackbone()}


def names_backbone(name: str | None) -> bool:
    """Whether a name is that of a backbone, ``prefix:source``."""
    return name is not None and ":" in name and name.partition(":")[0] in BACKBONES


def find_backbone(name: str) -> tuple[Backbone, str]:
    """Return the family of a backbone and its source, of ``prefix:source``."""
    prefix, colon, source = name.partition(":")
    if prefix not in BACKBONES:
        raise HierlearnError(unknown_name("family of backbones", prefix, BACKBONES))
    if not colon or not source:
        raise HierlearnError(f"{name!r} names no backbone; write {prefix}:{BACKBONES[prefix].such}")
    return BACKBONES[prefix], source


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


__all__ = ["BACKBONES", "Backbone", "Encoder", "find_backbone", "names_backbone", "parse_encoder"]
