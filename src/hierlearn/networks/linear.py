"""Networks of one layer: a linear head on the inputs, as they are or scaled to length 1.

``embeddings`` is for vectors that another model made; both can be solved by L-BFGS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn
from torch.nn.functional import normalize

from hierlearn.errors import HierlearnError
from hierlearn.networks.ensemble import StackedEnsemble
from hierlearn.networks.heads import LinearHead
from hierlearn.networks.layers import InputNoise
from hierlearn.networks.network import Network

if TYPE_CHECKING:
    from torch import Tensor

    from hierlearn.hierarchy import Hierarchy, LabelSpace
    from hierlearn.links import Link
    from hierlearn.networks.inputs import InputSpec
    from hierlearn.networks.layers import Dense


def linear(
    label_space: LabelSpace | Hierarchy,
    inputs: InputSpec,
    *,
    link: str | Link = "sigmoid",
    input_dropout: float = 0.0,
) -> Network:
    """Return a linear head on dense or sparse inputs; see InputNoise for ``input_dropout``."""
    return Network(InputNoise(input_dropout), LinearHead(inputs.width, label_space, link))


def only_layer(network: nn.Module) -> Dense | None:
    """Return the only layer of a network; None where there are others, or noise before it.

    Args:
        network: a network, or members of an ensemble that are stacked.
    """
    inner = network.network if isinstance(network, StackedEnsemble) else network
    if not isinstance(inner, Network) or len(inner.heads) != 1:
        return None
    encoder, (head,) = inner.encoder, inner.heads.values()
    plain = isinstance(encoder, UnitLength)
    plain |= isinstance(encoder, InputNoise) and encoder.p == 0 and encoder.std == 0
    return head.linear if plain and isinstance(head, LinearHead) else None


def encoder_of(network: nn.Module) -> nn.Module:
    """Return what inputs go through before the heads."""
    inner: Any = network.network if isinstance(network, StackedEnsemble) else network
    found: nn.Module = inner.encoder
    return found


linear.search_space = {}  # type: ignore[attr-defined]  # values worth trying
linear.is_linear = True  # type: ignore[attr-defined]  # one layer, which L-BFGS can solve


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


embeddings.search_space = {}  # type: ignore[attr-defined]  # values worth trying
embeddings.is_linear = True  # type: ignore[attr-defined]  # one layer, which L-BFGS can solve
