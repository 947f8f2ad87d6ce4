"""Backbone: the encoder of a pretrained network, trained with a linear head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hierlearn.backbones import find_backbone
from hierlearn.errors import HierlearnError
from hierlearn.networks.augment import make_augment
from hierlearn.networks.heads import LinearHead
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec


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


backbone.search_space = {}  # type: ignore[attr-defined]  # values worth trying
