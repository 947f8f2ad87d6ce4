"""Backbones: pretrained networks that turn texts or images into features.

``prefix:source`` names one: the family, a key of ``BACKBONES``, and which of them.

    hf:PATH_OR_NAME     a text encoder of transformers, from a folder or by its name
    timm:resnet18       an image encoder of timm

A backbone is frozen and used as preprocessing, or trained as the encoder of a network. Its own
packages are imported when it is used. A family of your own takes one line,
``BACKBONES["mine"] = MyBackbone()``.
"""

from __future__ import annotations

from hierlearn.backbones.backbone import Backbone, Encoder
from hierlearn.backbones.encoder_spec import parse_encoder
from hierlearn.backbones.hf import HFBackbone
from hierlearn.backbones.timm import TimmBackbone
from hierlearn.errors import HierlearnError, unknown_name

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


__all__ = ["BACKBONES", "Backbone", "Encoder", "find_backbone", "names_backbone", "parse_encoder"]
