"""Stage 7: networks, encoders with heads, from inputs to node log-probabilities.

``NETWORKS`` maps a name to a factory ``(label_space, inputs, **options) -> nn.Module``. A network
returns a ``HeadOutput``, several of them by name, or plain (N, C) logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hierlearn.links import Head
from hierlearn.networks.estimator import estimator
from hierlearn.networks.heads import HEADS, LinearHead
from hierlearn.networks.images import CNNEncoder, cnn
from hierlearn.networks.inputs import InputSpec, SparseRows
from hierlearn.networks.kernel import kernel
from hierlearn.networks.linear import embeddings, linear
from hierlearn.networks.mlp import MLPEncoder, TokenBagEncoder, mlp, token_bag
from hierlearn.networks.network import Network, read_output
from hierlearn.networks.trees import trees
from hierlearn.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

BUILT_IN: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "token-bag": token_bag,
    "linear": linear,
    "embeddings": embeddings,
    "cnn": cnn,
    "trees": trees,
    "kernel": kernel,
    "estimator": estimator,
}
NETWORKS = Registry(
    "network",
    BUILT_IN,
    group="hierlearn.networks",
    expected="a factory, which is callable",
    read=lambda _, value: value if callable(value) else None,
)

__all__ = [
    "HEADS",
    "NETWORKS",
    "CNNEncoder",
    "Head",
    "InputSpec",
    "LinearHead",
    "MLPEncoder",
    "Network",
    "SparseRows",
    "TokenBagEncoder",
    "read_output",
]
