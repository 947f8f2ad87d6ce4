"""Linear: a linear head on the inputs as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.networks.heads import LinearHead
from hierlearn.networks.layers import InputNoise
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec


def linear(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    input_dropout: float = 0.0,
) -> Network:
    """Return a linear head on dense or sparse inputs; see InputNoise for ``input_dropout``."""
    return Network(InputNoise(input_dropout), LinearHead(inputs.width, label_space, link))


linear.search_space = {}  # type: ignore[attr-defined]  # values worth trying
