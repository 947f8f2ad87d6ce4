"""Embeddings: vectors that another model made, of length 1, then a head; no hidden layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn
from torch.nn.functional import normalize

from hierlearn.errors import HierlearnError
from hierlearn.networks.heads import LinearHead
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec

NAME = "embeddings"


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
            f"the network {NAME!r} reads vectors of numbers, but the inputs are {inputs.kind}; "
            f"choose another network"
        )
    return Network(UnitLength(), LinearHead(inputs.width, label_space, link))


embeddings.search_space = {}  # type: ignore[attr-defined]  # values worth trying
embeddings.is_linear = True  # type: ignore[attr-defined]  # one layer, which L-BFGS can solve
