"""Networks of one layer: a linear head on the inputs, as they are or scaled to length 1.

``embeddings`` is for vectors that another model made. Both take a head that is solved at once, see
``sparse_linear.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import nn
from torch.nn.functional import normalize

from hierlearn.errors import HierlearnError
from hierlearn.networks.heads import LinearHead
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec


def linear(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
) -> Network:
    """Return a linear head on dense or sparse inputs."""
    return Network(nn.Identity(), LinearHead(inputs.width, label_space, link))


linear.is_linear = True  # type: ignore[attr-defined]  # its head can be solved at once


EMBEDDINGS = "embeddings"


class UnitLength(nn.Module):
    """Rows divided by their Euclidean length; a row of zeros stays 0."""

    stackable: ClassVar[bool] = True

    def forward(self, x: Tensor) -> Tensor:
        """Return rows of length 1."""
        return normalize(x, dim=-1)


def embeddings(
    label_space: LabelSpace | Hierarchy, inputs: InputSpec, *, link: str | Link = "sigmoid"
) -> Network:
    """Return a linear head on rows of length 1; ``head="neighbors"`` makes it a memory.

    Args:
        label_space: what can be predicted.
        inputs: vectors of numbers.
        link: how the head reads its logits.
    """
    if inputs.kind != "numbers":
        raise HierlearnError(
            f"the network {EMBEDDINGS!r} reads vectors of numbers, but the inputs are "
            f"{inputs.kind}; "
            f"choose another network"
        )
    return Network(UnitLength(), LinearHead(inputs.width, label_space, link))


embeddings.is_linear = True  # type: ignore[attr-defined]  # its head can be solved at once
