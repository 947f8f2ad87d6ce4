"""Linear: a linear head on the inputs as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from hierlearn.networks.heads import LinearHead
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec


def linear(
    label_space: LabelSpace | Hierarchy, inputs: InputSpec, *, link: str | Link = "sigmoid"
) -> Network:
    """Return a linear head on dense or sparse inputs."""
    return Network(nn.Identity(), LinearHead(inputs.width, label_space, link))


linear.search_space = {}  # type: ignore[attr-defined]  # values worth trying
